//! Diesel's migrations from several processes: one applies them, the others wait and then continue.

use crate::gated_migrations::{
    GATE, MIGRATIONS, NAMES, assert_migrated, both, gate, open, start, telling, until_it_waits,
};
use advisory_runtime::blocking;
use advisory_runtime::migrations::{self, Error, KEY, Migrator, Report, Step};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::poolers::bouncer;
use advisory_tests::written_migrations::Written;
use advisory_tests::{Database, assert_matches};
use diesel::{Connection as _, PgConnection};
use std::sync::{Arc, Mutex};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_ten_that_start_at_once_one_migrates_and_nine_wait() {
    for is_blocking in [false, true] {
        let db = Database::create().await;
        let gate = gate(&db).await;
        let mut runs = Vec::new();
        for _ in 0..10 {
            let (migrator, told) = telling(MIGRATIONS);
            runs.push((start(&db, is_blocking, migrator), told));
        }
        db.until_waiting(GATE).await;
        let mut waiting = 0;
        for (_, told) in &mut runs {
            if let Step::Waiting { holders, .. } = told.recv().await.unwrap() {
                assert_eq!(holders.len(), 1, "{holders:?}");
                waiting += 1;
            }
        }
        assert_eq!(waiting, 9);
        open(gate).await;
        let mut applied = Vec::new();
        for (run, _) in runs {
            let report = run.await.unwrap().unwrap().applied;
            applied.extend((!report.is_empty()).then_some(report));
        }
        assert_eq!(applied, [NAMES]);
        assert_migrated(&db).await;
        let again = start(&db, true, MIGRATIONS).await.unwrap();
        assert_eq!(again.unwrap(), Report::default());
    }
}

#[tokio::test]
async fn the_key_is_what_the_page_says() {
    let db = Database::create().await;
    let hash = "SELECT ('x' || encode(substring(sha256('diesel_migrations') FOR 8), 'hex'))::bit(64)::bigint";
    assert_eq!(db.count(hash).await, KEY);
    assert_eq!(
        KEY, 8_120_370_389_078_587_295,
        "a changed key un-locks a fleet that is half upgraded"
    );
}

const END: &str = "SELECT pg_terminate_backend(pg_backend_pid())";

#[tokio::test]
async fn a_lost_connection_says_what_was_applied() {
    let db = Database::create().await;
    let lost = Written(vec![
        ("1", "CREATE TABLE a (id int8)"),
        ("2", END),
        ("3", "SELECT 1"),
    ]);
    let [awaited, blocking] = both(&db, lost.clone()).await;
    for (error, applied) in [
        (awaited.unwrap_err(), &["1"][..]),
        (blocking.unwrap_err(), &[]),
    ] {
        assert_eq!(error.applied(), applied, "{error:?}");
        assert_matches!(
            &error,
            Error::ConnectionLost { migration: Some(migration), .. } if migration == "2"
        );
        assert!(
            error.to_string().contains("run the migrations again"),
            "{error}"
        );
    }
    db.until_no_locks().await;
    // Between two migrations, or after the last one.
    for source in [
        Written(vec![("5", "SELECT 1"), ("6", "SELECT 1")]),
        Written(vec![("7", "SELECT 1")]),
    ] {
        let (pids, of_pids) = std::sync::mpsc::channel();
        let first = source.0[0].0;
        let of_pids = Mutex::new(of_pids);
        let (killer, url) = (Arc::new(of_pids), db.url().to_owned());
        let migrator = Migrator::new(source).on_step(move |step| {
            if matches!(step, Step::Done { .. }) {
                let pid: i32 = killer.lock().unwrap().recv().unwrap();
                let sql = format!("SELECT pg_terminate_backend({pid}, 5000)");
                let mut other = PgConnection::establish(&url).unwrap();
                advisory_tests::blocking::execute(&mut other, &sql).unwrap();
            }
        });
        let mut conn = db.connect().await;
        pids.send(advisory_tests::pid_of(&mut conn).await).unwrap();
        let error = migrator.run_on(conn).await.map(drop).unwrap_err();
        assert_eq!(error.applied(), [first], "{error:?}");
        assert_matches!(
            &error,
            Error::ConnectionLost {
                migration: None,
                ..
            }
        );
    }
    db.until_no_locks().await;
}

#[tokio::test]
async fn one_that_is_killed_halfway_is_followed_by_another() {
    let db = Database::create().await;
    let gate = gate(&db).await;
    let first = migrations::run(db.url(), MIGRATIONS);
    let (migrator, mut told) = telling(MIGRATIONS);
    let second = migrator.run(db.url());
    let (first, second, ()) = tokio::join!(
        first,
        async {
            db.until_waiting(GATE).await;
            second.await
        },
        async {
            let holders = until_it_waits(&mut told).await;
            db.terminate(holders[0].pid).await;
            open(gate).await;
        }
    );
    let error = first.unwrap_err();
    assert_matches!(error, Error::ConnectionLost { .. });
    assert_eq!(second.unwrap().applied, NAMES);
    assert_migrated(&db).await;
}

#[tokio::test]
async fn the_table_of_migrations_is_found_on_the_search_path() {
    let db = Database::create().await;
    db.run("CREATE SCHEMA \"My Schema\"").await;
    db.set("search_path = \"My Schema\"").await;
    let [first, second] = both(&db, Written(vec![("1", "SELECT 1")])).await;
    assert_eq!(first.unwrap().applied, ["1"]);
    assert_eq!(second.unwrap(), Report::default());
    let of_schema = "SELECT count(*) FROM \"My Schema\".__diesel_schema_migrations";
    assert_eq!(db.count(of_schema).await, 1);
}

/// Such as one schema for each tenant, and another for what they share.
#[tokio::test]
async fn a_later_schemas_migrations_are_not_those_of_the_first() {
    let db = Database::create().await;
    let source = Written(vec![("1", "CREATE TABLE account (id int8)")]);
    let report = migrations::run(db.url(), source.clone()).await.unwrap();
    assert_eq!(report.applied, ["1"]);
    db.run("CREATE SCHEMA tenant").await;
    db.set("search_path = tenant, public").await;
    let [first, second] = both(&db, source).await;
    assert_eq!(first.unwrap().applied, ["1"]);
    assert_eq!(second.unwrap(), Report::default());
    assert_eq!(db.count("SELECT count(*) FROM tenant.account").await, 0);
}

/// The set-up of the connection can fail by itself there.
#[tokio::test]
async fn behind_a_transaction_mode_pooler_it_refuses_to_begin() {
    let db = Database::create().await;
    for settings in [
        "default_pool_size = 1",
        "default_pool_size = 3\nserver_round_robin = 1",
        "default_pool_size = 3\nmin_pool_size = 3",
    ] {
        let settings = format!("pool_mode = transaction\n{settings}");
        let Some(bouncer) = bouncer(&db, &settings).await else {
            return;
        };
        let url = bouncer.url(&db);
        for _ in 0..3 {
            let awaited = migrations::run(&url, MIGRATIONS).await;
            let blocking = {
                let url = url.clone();
                spawn_blocking(move || blocking::migrations::run(&url, MIGRATIONS)).await
            };
            for said in [awaited, blocking.unwrap()] {
                let error = said.expect_err(&settings);
                assert_matches!(error, Error::Pooler, "{settings}");
                assert!(error.to_string().contains("the server itself"), "{error}");
            }
        }
        assert_eq!(
            db.count("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
                .await,
            0
        );
        db.until_no_locks().await;
    }
}

#[tokio::test]
async fn behind_a_pooler_in_session_mode_it_runs() {
    let db = Database::create().await;
    let Some(bouncer) = bouncer(&db, "pool_mode = session\ndefault_pool_size = 2").await else {
        return;
    };
    let report = migrations::run(&bouncer.url(&db), MIGRATIONS)
        .await
        .unwrap();
    assert_eq!(report.applied, NAMES);
    assert_migrated(&db).await;
}
