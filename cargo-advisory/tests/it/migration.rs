//! The project's own migrations are printed unchanged, and run up and down.

use advisory_tests::Database;

use crate::programs::{Said, advisory, assert_has, run_at, scratch, words};

fn migration(words: &[&str]) -> Said {
    advisory(&[&["migration"], words].concat())
}

async fn printed(words: &[&str]) -> String {
    let said = run_at("", &[&["migration"], words].concat()).await.fine();
    said.out
}

async fn up_and_down(words: &[&str]) -> (String, String) {
    let down = printed(&[words, &["--down"]].concat()).await;
    (printed(words).await, down)
}

#[test]
fn what_is_printed_is_the_crates_migration() {
    macro_rules! file {
        ($name:literal) => {
            include_str!(concat!("../../../advisory-runtime/migrations/", $name))
        };
    }
    for (line, file) in [
        ("lease", file!("2026-01-02-000000_advisory_lease/up.sql")),
        (
            "lease --down",
            file!("2026-01-02-000000_advisory_lease/down.sql"),
        ),
        ("keys", file!("2026-01-01-000000_advisory_keys/up.sql")),
        (
            "keys --down",
            file!("2026-01-01-000000_advisory_keys/down.sql"),
        ),
    ] {
        let words = words(line);
        assert!(migration(&words).out == file, "{words:?}");
        let path = scratch("migration.sql");
        let said = migration(&[&words[..], &["-o", &path]].concat()).exits(0);
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
    for (line, made) in [
        ("lease", "public.advisory_lease"),
        ("lease --table locks.app_lease", "locks.app_lease"),
        ("keys", "advisory_key(text)"),
    ] {
        let (up, down) = up_and_down(&words(line)).await;
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

/// The columns and indexes of claims are added to a table and dropped again.
#[tokio::test(flavor = "multi_thread")]
async fn what_claims_need_runs_up_and_down_and_up_again() {
    const PER: &[&str] = &["--per", "tenant", "--order", "priority desc, id"];
    let db = Database::create().await;
    db.run("CREATE SCHEMA shop; CREATE TABLE shop.mail (id int8 PRIMARY KEY, tenant text, priority int4)")
        .await;
    let indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'shop.mail'::regclass";
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'shop.mail'::regclass AND attnum > 0 AND NOT attisdropped";
    for (more, made) in [(&[][..], 2), (PER, 4)] {
        let words = [&["claim", "--table", "shop.mail"], more].concat();
        let (up, down) = up_and_down(&words).await;
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
}
