//! `monitor::claimed_rows`: the claimed rows of any table, given only its name.

use advisory_runtime::monitor::{self, ClaimedRow};
use advisory_tests::Database;
use diesel_async::SimpleAsyncConnection;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A table of this name, quoted as in SQL, with a row that is claimed for an hour.
async fn table(db: &Database, name: &str) {
    db.run(&format!(
        "CREATE TABLE {name} (id int PRIMARY KEY, locked_until timestamptz, locked_by text); \
         INSERT INTO {name} VALUES (7, clock_timestamp() + interval '1 hour', 'one#u')"
    ))
    .await;
}

fn is_the_row(rows: &[ClaimedRow]) -> bool {
    matches!(rows, [row] if row.key == "7" && row.locked_by == "one#u"
        && row.remaining > HOUR / 2 && row.remaining <= HOUR)
}

/// In a string literal the backslash escapes the quote after it if `standard_conforming_strings` is
/// off.
#[tokio::test]
async fn a_tables_name_is_quoted_under_any_string_setting() {
    let db = Database::create().await;
    let names = [
        (r"a\'b", r#""a\'b""#),
        (r#"a"b\"#, r#""a""b\""#),
        ("pub'lic.Jobs", r#""pub'lic"."Jobs""#),
        (r"pub'lic.\' OR 1=1 --", r#""pub'lic"."\' OR 1=1 --""#),
    ];
    db.run(r#"CREATE SCHEMA "pub'lic""#).await;
    let mut conn = db.connect().await;
    for (_, quoted) in names {
        table(&db, quoted).await;
    }
    for setting in ["on", "off"] {
        // PostgreSQL 19 has only the value `on`.
        let set = format!("SET standard_conforming_strings = {setting}");
        if conn.batch_execute(&set).await.is_err() {
            continue;
        }
        for (name, _) in names {
            let rows = monitor::claimed_rows(&mut conn, name).await.unwrap();
            assert!(is_the_row(&rows), "{name}, {setting}: {rows:?}");
        }
    }
}

#[tokio::test]
async fn a_row_that_is_claimed_forever_is_listed_with_the_others() {
    let db = Database::create().await;
    table(&db, "jobs").await;
    db.run("INSERT INTO jobs VALUES (8, 'infinity', 'two#u'), (9, '-infinity', 'three#u'), (10, NULL, NULL)")
        .await;
    let mut conn = db.connect().await;
    let rows = monitor::claimed_rows(&mut conn, "jobs").await.unwrap();
    let [expired, one, forever] = &*rows else {
        panic!("{rows:?}")
    };
    assert!(is_the_row(std::slice::from_ref(one)), "{one:?}");
    let others = [expired, forever].map(|row| (&*row.key, row.remaining));
    assert_eq!(others, [("9", Duration::ZERO), ("8", Duration::MAX)]);
}

#[tokio::test]
async fn a_tables_columns_can_be_called_as_anything() {
    let db = Database::create().await;
    // Names that the statement uses for its own tables and columns.
    let names = ["t", "i", "k", "a", "key", "remaining", "attname", "jobs"];
    let columns = names.map(|name| format!("{name} int")).join(", ");
    table(&db, "jobs").await;
    db.run(&format!(
        "CREATE TABLE named (LIKE jobs INCLUDING ALL, {columns})"
    ))
    .await;
    db.run("INSERT INTO named SELECT * FROM jobs").await;
    let mut conn = db.connect().await;
    let rows = monitor::claimed_rows(&mut conn, "named").await.unwrap();
    assert!(is_the_row(&rows), "{rows:?}");
}
