//! The project's own migrations are printed unchanged, and run up and down.

use advisory_tests::Database;

use crate::programs::{Said, advisory, assert_has, run_at, scratch};

fn migration(words: &[&str]) -> Said {
    advisory(&[&["migration"], words].concat())
}

async fn printed(words: &[&str]) -> String {
    let said = run_at("", &[&["migration"], words].concat()).await.fine();
    said.out
}

#[test]
fn what_is_printed_is_the_crates_migration() {
    macro_rules! file {
        ($name:literal) => {
            include_str!(concat!("../../../advisory-runtime/migrations/", $name))
        };
    }
    for (words, file) in [
        (
            &["lease"][..],
            file!("2026-01-02-000000_advisory_lease/up.sql"),
        ),
        (
            &["lease", "--down"],
            file!("2026-01-02-000000_advisory_lease/down.sql"),
        ),
        (&["keys"], file!("2026-01-01-000000_advisory_keys/up.sql")),
        (
            &["keys", "--down"],
            file!("2026-01-01-000000_advisory_keys/down.sql"),
        ),
    ] {
        assert!(migration(words).out == file, "{words:?}");
        let path = scratch("migration.sql");
        let said = migration(&[words, &["-o", &path]].concat()).exits(0);
        assert_eq!(said.out, "");
        assert!(std::fs::read_to_string(&path).unwrap() == file, "{words:?}");
    }
}

/// A shell leaves a pattern as it is if there is no such file.
#[test]
fn a_pattern_without_a_file_is_refused_as_the_output() {
    let pattern = scratch("no-migrations/*_advisory_lease/up.sql");
    for words in [&["migration", "lease"][..], &["key", "booking:42"]] {
        let said = advisory(&[words, &["-o", &pattern]].concat()).exits(2);
        assert_eq!(said.out, "");
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert_has(&said.err, "this pattern matches no file");
    }
    assert!(!std::path::Path::new(&scratch("no-migrations")).exists());
    // A file can have such a name.
    let named = crate::programs::file("which[1].sql", "");
    migration(&["keys", "-o", &named]).exits(0);
}

/// In an empty database, each migration creates the objects that it names, and its `down.sql`
/// removes all of them.
#[tokio::test(flavor = "multi_thread")]
async fn every_migration_runs_up_and_down_and_up_again() {
    let db = Database::create().await;
    db.run("CREATE SCHEMA locks").await;
    let left = "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace IN ('public'::regnamespace, 'locks'::regnamespace)) \
                + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)";
    for (up, down, made) in [
        (
            &["lease"][..],
            &["lease", "--down"][..],
            "public.advisory_lease",
        ),
        (
            &["lease", "--table", "locks.app_lease"],
            &["lease", "--table", "locks.app_lease", "--down"],
            "locks.app_lease",
        ),
        (&["keys"], &["keys", "--down"], "advisory_key(text)"),
    ] {
        let (up, down) = (printed(up).await, printed(down).await);
        let kind = if made.ends_with(')') {
            "regprocedure"
        } else {
            "regclass"
        };
        let is_there = format!("SELECT (to_{kind}('{made}') IS NOT NULL)::int");
        for _ in 0..2 {
            db.run(&up).await;
            assert_eq!(db.count(&is_there).await, 1, "{made}");
            db.run(&down).await;
            assert_eq!(db.count(left).await, 0, "{made}");
        }
    }
}

/// What claims need is added to a table, and taken away, and the claims of the runtime work on it.
#[tokio::test(flavor = "multi_thread")]
async fn what_claims_need_runs_up_and_down_and_up_again() {
    const PRINTED: [&[&str]; 2] = [
        &["claim", "--table", "shop.mail"],
        &[
            "claim",
            "--table",
            "shop.mail",
            "--per",
            "tenant",
            "--order",
            "priority desc, id",
        ],
    ];
    const DOWN: [&[&str]; 2] = [
        &["claim", "--table", "shop.mail", "--down"],
        &[
            "claim",
            "--table",
            "shop.mail",
            "--per",
            "tenant",
            "--order",
            "priority desc, id",
            "--down",
        ],
    ];
    let db = Database::create().await;
    db.run("CREATE SCHEMA shop; CREATE TABLE shop.mail (id int8 PRIMARY KEY, tenant text, priority int4)")
        .await;
    let indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'shop.mail'::regclass";
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'shop.mail'::regclass AND attnum > 0 AND NOT attisdropped";
    for ((up, down), made) in PRINTED.into_iter().zip(DOWN).zip([2, 4]) {
        let (up, down) = (printed(up).await, printed(down).await);
        for _ in 0..2 {
            db.run(&up).await;
            assert_eq!(
                (db.count(columns).await, db.count(indexes).await),
                (10, made)
            );
            db.run(&down).await;
            assert_eq!((db.count(columns).await, db.count(indexes).await), (3, 1));
        }
    }
    let said = migration(&["claim", "--table", "mail", "--order", "id downwards"]);
    assert_has(&said.err, "`--order` cannot contain `id downwards`");
}
