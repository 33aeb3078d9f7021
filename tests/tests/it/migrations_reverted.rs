//! Reverting migrations: under the same lock, the last one first.

use crate::gated_migrations::{MIGRATIONS, NAMES, hold, open, start, telling, until_it_waits};
use advisory_runtime::migrations::{self, Error, KEY, Migrator, Report, Step};
use advisory_tests::written_migrations::Written;
use advisory_tests::{Database, assert_matches};

async fn applied(db: &Database) -> i64 {
    db.count("SELECT count(*) FROM __diesel_schema_migrations")
        .await
}

#[tokio::test]
async fn the_last_ones_are_reverted_and_no_others() {
    let db = Database::create().await;
    let nothing = Migrator::new(MIGRATIONS).revert_last(1).run(db.url()).await;
    assert_eq!(nothing.unwrap(), Report::default());
    migrations::run(db.url(), MIGRATIONS).await.unwrap();
    let report = Migrator::new(MIGRATIONS).revert_last(2).run(db.url()).await;
    let report = report.unwrap();
    assert_eq!(report.reverted, [NAMES[2], NAMES[1]]);
    assert_eq!(report.applied, [""; 0]);
    assert_eq!(applied(&db).await, 1);
    let index = "SELECT count(*) FROM pg_class WHERE relname = 'account_name'";
    assert_eq!(db.count(index).await, 0);
    let again = migrations::run(db.url(), MIGRATIONS).await.unwrap();
    assert_eq!(again.applied, NAMES[1..]);
    let all = Migrator::new(MIGRATIONS).revert_last(usize::MAX);
    let all = start(&db, true, all).await.unwrap();
    assert_eq!(all.unwrap().reverted, [NAMES[2], NAMES[1], NAMES[0]]);
    assert_eq!(applied(&db).await, 0);
    db.until_no_locks().await;
}

#[tokio::test]
async fn a_revert_waits_for_the_lock_and_says_what_it_does() {
    let db = Database::create().await;
    migrations::run(db.url(), MIGRATIONS).await.unwrap();
    let holder = hold(&db, KEY).await;
    let (migrator, mut told) = telling(MIGRATIONS);
    let (report, ()) = tokio::join!(migrator.revert_last(1).run(db.url()), async {
        until_it_waits(&mut told).await;
        assert_eq!(applied(&db).await, 3);
        open(holder).await;
    });
    assert_eq!(report.unwrap().reverted, [NAMES[2]]);
    let mut steps = Vec::new();
    while let Some(step) = told.recv().await {
        match step {
            Step::Waiting { .. } => {}
            Step::Done { migration, .. } => steps.push(migration),
            step => steps.push(step.to_string()),
        }
    }
    let expected = [
        "the lock is held: 1 migration is reverted".to_owned(),
        format!("reverting `{}` (1 of 1)", NAMES[2]),
        NAMES[2].to_owned(),
    ];
    assert_eq!(steps, expected);
}

#[tokio::test]
async fn one_that_no_source_has_is_not_skipped() {
    let db = Database::create().await;
    let library = || Written(vec![("20270101000000", "SELECT 1")]);
    let both = Migrator::new(MIGRATIONS).and(library()).run(db.url()).await;
    both.unwrap();
    let error = Migrator::new(MIGRATIONS).revert_last(2).run(db.url()).await;
    let error = error.unwrap_err();
    assert_matches!(error, Error::Source(_));
    assert!(error.to_string().contains("`20270101000000`"), "{error}");
    assert_eq!(applied(&db).await, 4);
    let both = Migrator::new(MIGRATIONS).and(library()).revert_last(2);
    let report = both.run(db.url()).await.unwrap();
    assert_eq!(report.reverted, ["20270101000000", NAMES[2]]);
    db.until_no_locks().await;
}

#[tokio::test]
async fn one_that_cannot_be_reverted_is_named() {
    let db = Database::create().await;
    migrations::run(db.url(), MIGRATIONS).await.unwrap();
    db.run("DROP INDEX account_name").await;
    let error = Migrator::new(MIGRATIONS).revert_last(3).run(db.url()).await;
    let error = error.unwrap_err();
    assert_matches!(&error, Error::Revert { migration, .. } if migration == NAMES[1]);
    assert_eq!(error.reverted(), [NAMES[2]]);
    let text = error.to_string();
    let before = format!("reverted before: `{}`", NAMES[2]);
    assert!(text.ends_with(&before), "{text}");
    assert_eq!(applied(&db).await, 2);
    db.until_no_locks().await;
}
