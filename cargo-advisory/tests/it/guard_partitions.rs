//! Guards of tables with partitions or inheritance children: each table that a write can name
//! refuses it without the lock.

use std::sync::atomic::{AtomicUsize, Ordering};

use advisory_pattern::Record;
use advisory_tests::Database;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use serde_json::Value;

use crate::guards::{REFUSED, guard, require};
use crate::programs::{Said, assert_starts, program_of, run_at, site};

const FIXED: [&str; 3] = ["--key=the-register", "--lock=register", "--table=ledger"];
const PER_ROW: [&str; 3] = [
    "--key=account:<account: int>",
    "--lock=register",
    "--table=ledger",
];

const PARTITIONED: &str = "CREATE TABLE ledger (account int, day int) PARTITION BY LIST (day);
    CREATE SCHEMA \"Old\";
    CREATE TABLE \"Old\".\"part 1\" PARTITION OF ledger FOR VALUES IN (1);
    CREATE TABLE part_2 PARTITION OF ledger FOR VALUES IN (2) PARTITION BY LIST (account);
    CREATE TABLE part_2_7 PARTITION OF part_2 FOR VALUES IN (7)";
const INHERITED: &str = "CREATE TABLE ledger (account int, day int);
    CREATE TABLE child (note text) INHERITS (ledger);
    CREATE TABLE grandchild () INHERITS (child)";

async fn database(tables: &str, words: &[&str]) -> (Database, AsyncPgConnection) {
    let db = Database::create().await;
    db.run(tables).await;
    guard(&db, words).await;
    let conn = db.connect().await;
    (db, conn)
}

fn lock(text: &str) -> String {
    let key = advisory_pattern::Derivation::Sha256.key(text);
    format!("SELECT pg_advisory_xact_lock({key})")
}

/// Returns `true` if the statement is refused without the lock. Checks that it is allowed with it.
async fn needs_lock(conn: &mut AsyncPgConnection, lock: &str, sql: &str) -> bool {
    let without = conn.batch_execute(&format!("BEGIN;{sql};COMMIT")).await;
    conn.batch_execute("ROLLBACK").await.unwrap();
    conn.batch_execute(&format!("BEGIN;{lock};{sql};ROLLBACK"))
        .await
        .unwrap();
    without.is_err_and(|error| error.to_string().starts_with(REFUSED))
}

/// `check` of a program with one lock, which guards the table.
async fn check(db: &Database, key: &str) -> Said {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let record = Record {
        name: Some("register".into()),
        guards: vec!["ledger".into()],
        ..site("books", "post", 7, &[key], &[&format!("pattern {key}")])
    };
    let program = program_of(&format!("guard-partitions-{count}.rmeta"), &[record]);
    let words = ["check", "--format", "json", "--database-url", db.url()];
    run_at(db.url(), &[&words[..], &["--artifact", &program]].concat()).await
}

async fn notes(db: &Database, key: &str) -> Vec<String> {
    let said = check(db, key).await;
    let value: Value = serde_json::from_str(&said.out).unwrap();
    let findings = value["findings"].as_array().unwrap();
    let findings: Vec<&Value> = findings
        .iter()
        .filter(|found| found["kind"] != "advice")
        .collect();
    assert_eq!(said.code, Some(i32::from(!findings.is_empty())), "{said:?}");
    let notes = findings
        .iter()
        .flat_map(|it| it["notes"].as_array().unwrap());
    notes
        .map(|note| note.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_fixed_key_binds_every_write_to_a_partition() {
    let (db, mut conn) = database(PARTITIONED, &FIXED).await;
    // A partition that is created later, and one that is attached.
    db.run(
        "CREATE TABLE part_3 PARTITION OF ledger FOR VALUES IN (3);
         CREATE TABLE part_4 (account int, day int);
         INSERT INTO part_4 VALUES (1, 4); ALTER TABLE ledger ATTACH PARTITION part_4 FOR VALUES IN (4)",
    )
    .await;
    let lock = lock("the-register");
    for sql in [
        "INSERT INTO ledger VALUES (1, 1)",
        "INSERT INTO \"Old\".\"part 1\" VALUES (1, 1)",
        "INSERT INTO part_2 VALUES (7, 2)",
        "INSERT INTO part_2_7 VALUES (7, 2)",
        "INSERT INTO part_3 VALUES (1, 3)",
        "INSERT INTO part_4 VALUES (1, 4)",
        "UPDATE part_4 SET account = 2",
        "DELETE FROM part_4",
        "TRUNCATE ledger",
        "TRUNCATE \"Old\".\"part 1\"",
        "TRUNCATE part_2",
        "TRUNCATE part_2_7",
    ] {
        assert!(needs_lock(&mut conn, &lock, sql).await, "{sql}");
    }
}

#[tokio::test]
async fn inheritance_children_are_bound_as_their_parent_is() {
    for (words, key, truncates) in [(FIXED, "the-register", true), (PER_ROW, "account:1", false)] {
        let (db, mut conn) = database(INHERITED, &words).await;
        db.run(&format!(
            "BEGIN; {}; INSERT INTO grandchild VALUES (1, 1, ''); COMMIT",
            lock(key)
        ))
        .await;
        for sql in [
            "INSERT INTO child VALUES (1, 1, '')",
            "INSERT INTO grandchild VALUES (1, 1, '')",
            "UPDATE ledger SET day = 2",
            "DELETE FROM grandchild",
        ] {
            let is_needed = needs_lock(&mut conn, &lock(key), sql).await;
            assert!(is_needed, "{words:?} {sql}");
        }
        for sql in ["TRUNCATE child", "TRUNCATE ledger"] {
            let is_needed = needs_lock(&mut conn, &lock(key), sql).await;
            assert_eq!(is_needed, truncates, "{sql}");
        }
    }
}

#[tokio::test]
async fn a_partition_without_its_guard_is_a_finding() {
    let (db, _conn) = database(PARTITIONED, &FIXED).await;
    assert_eq!(notes(&db, "the-register").await, [""; 0]);
    db.run("CREATE TABLE part_3 PARTITION OF ledger FOR VALUES IN (3)")
        .await;
    let not_truncate = "has a trigger `advisory_require_register_rows` that is disabled, or does not run for each write";
    let of = |name: &str| format!("its partition `public.{name}` {not_truncate}");
    assert_eq!(notes(&db, "the-register").await, [of("part_3")]);
    // As in the next migration: the guard again, for all current partitions.
    let down = require(&[&FIXED[..], &["--down"]].concat()).await.out;
    let up = require(&FIXED).await.out;
    db.run(&format!("BEGIN; {down} {up} COMMIT")).await;
    assert_eq!(notes(&db, "the-register").await, [""; 0]);
    db.run("ALTER TABLE part_2_7 DISABLE TRIGGER advisory_require_register_rows")
        .await;
    assert_eq!(notes(&db, "the-register").await, [of("part_2_7")]);
    // The guard that earlier releases generated.
    db.run("DROP TRIGGER advisory_require_register_rows ON ledger")
        .await;
    db.run("DROP TRIGGER advisory_require_register ON part_2")
        .await;
    let notes = notes(&db, "the-register").await;
    assert_eq!(notes.len(), 4, "{notes:?}");
    let truncate = "has a trigger `advisory_require_register` that is disabled, or does not run for each write";
    assert_eq!(
        notes[0],
        format!("its partition `\"Old\".\"part 1\"` {truncate}")
    );
    assert_eq!(
        notes[1],
        "its partition `public.part_2` has no trigger for the lock"
    );
    assert_eq!(notes[3], "and so on: 4 tables in all");
}

#[tokio::test]
async fn a_child_that_is_created_later_is_a_finding() {
    for (words, key) in [(FIXED, "the-register"), (PER_ROW, "account:<account: int>")] {
        let (db, _conn) = database(INHERITED, &words).await;
        assert_eq!(notes(&db, key).await, [""; 0]);
        db.run("CREATE TABLE later () INHERITS (ledger)").await;
        assert_eq!(
            notes(&db, key).await,
            ["its inheritance child `public.later` has no trigger for the lock"]
        );
    }
    let (db, _conn) = database(PARTITIONED, &PER_ROW).await;
    assert_eq!(notes(&db, "account:<account: int>").await, [""; 0]);
    db.run("ALTER TABLE part_2_7 DISABLE TRIGGER advisory_require_register")
        .await;
    let disabled = "its partition `public.part_2_7` has a trigger `advisory_require_register` that is disabled, or does not run for each write";
    assert_eq!(notes(&db, "account:<account: int>").await, [disabled]);
}

/// The same form, with the values in another order.
#[tokio::test]
async fn a_trigger_with_the_values_in_another_order_is_a_finding() {
    let db = Database::create().await;
    db.run("CREATE TABLE ledger (account int, day int)").await;
    let key = "--key=a:<account: int>:<day: int>";
    guard(&db, &[key, "--lock=register", "--table=ledger"]).await;
    assert_eq!(notes(&db, "a:<no: int>:<day: int>").await, [""; 0]);
    let found = notes(&db, "a:<day: int>:<account: int>").await;
    assert_starts(
        &found[0],
        "it has a trigger `advisory_require_register` that computes another key",
    );
}

#[tokio::test]
async fn down_removes_every_trigger_of_the_guard() {
    for tables in [PARTITIONED, INHERITED] {
        let (db, _conn) = database(tables, &FIXED).await;
        let down = require(&[&FIXED[..], &["--down"]].concat()).await.out;
        db.run(&down).await;
        let left = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'advisory%'";
        assert_eq!(db.count(left).await, 0);
    }
}
