//! A session-level lock behind a pooler of which the process knows nothing. A binary of its own: what is found out counts for the
//! process, so each test runs this binary once more for itself.
#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on fails the test"
)]

use advisory_runtime::migrations::{self, Migrator};
use advisory_runtime::{Error, Isolation, Request, Wait, advisory_lock, session, xact};
use advisory_tests::{Bouncer, Database, Proxy, left_out};
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use diesel_migrations::EmbeddedMigrations;
use std::process::Command;
use std::time::Duration;

/// Which test the process runs.
const TEST: &str = "ADVISORY_TEST_OF_THIS_PROCESS";

/// Whether this process is the one for this test; if not, runs one that is.
fn is_alone(test: &str) -> bool {
    if std::env::var(TEST).is_ok_and(|own| own == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(TEST, test);
    assert!(command.status().unwrap().success(), "{test}");
    false
}

async fn bouncer(db: &Database, mode: &str) -> Option<Bouncer> {
    match Bouncer::start(db, &format!("pool_mode = {mode}\ndefault_pool_size = 4")).await {
        Ok(bouncer) => Some(bouncer),
        Err(why) => {
            left_out("pgbouncer", why);
            None
        }
    }
}

/// Again where the set-up's prepared statements met another server session.
async fn connect(url: &str) -> AsyncPgConnection {
    for _ in 0..100 {
        if let Ok(conn) = AsyncPgConnection::establish(url).await {
            return conn;
        }
    }
    panic!("no connection to {url}")
}

#[advisory_lock(key = "report", scope = "session")]
async fn report(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(conn.batch_execute("SELECT 1").await?)
}

/// Every form of a session-level lock is refused, and nothing of it is left on the server.
async fn is_refused(db: &Database, url: &str) {
    let mut conn = connect(url).await;
    for wait in [Wait::Session, Wait::Never, Wait::Forever] {
        for request in [Request::new(7), Request::all([7, 8]).shared()] {
            let request = request.wait(wait);
            let error = session::acquire(&mut conn, request.clone())
                .await
                .unwrap_err();
            assert!(matches!(error, Error::PooledSession { .. }), "{error:?}");
            assert!(error.to_string().contains("session::verify"), "{error}");
            let failed = session::acquire_owned(conn, request).await.unwrap_err();
            assert!(matches!(failed.error, Error::PooledSession { .. }));
            conn = *failed.connection;
        }
    }
    // A try at a stricter level takes a session-level lock first.
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let strict = Request::new(7).isolation(isolation).wait(Wait::Never);
        let error = xact::begin(&mut conn, strict).await.unwrap_err();
        assert!(matches!(error, Error::PooledSession { .. }), "{error:?}");
    }
    let error = report(&mut conn).await.unwrap_err();
    assert!(matches!(error, Error::PooledSession { .. }), "{error:?}");
    let nothing = Migrator::new(EmbeddedMigrations::new(&[]));
    let error = nothing.run_on(conn).await.unwrap_err();
    assert!(matches!(error, migrations::Error::Pooler), "{error:?}");
    assert_eq!(db.locks().await, []);
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_at_the_first_call() {
    if !is_alone("a_pooler_in_transaction_mode_is_refused_at_the_first_call") {
        return;
    }
    let db = Database::create().await;
    let Some(bouncer) = bouncer(&db, "transaction").await else {
        return;
    };
    is_refused(&db, &bouncer.url(&db)).await;
    // A first call without a pooler does not speak for the others.
    report(&mut db.connect().await).await.unwrap();
    session::verify(&db.deadpool(2)).await.unwrap();
    is_refused(&db, &bouncer.url(&db)).await;
    // What needs no session goes on.
    let mut conn = connect(&bouncer.url(&db)).await;
    let strict = Request::new(9).isolation(Isolation::Serializable);
    for request in [Request::new(9), strict] {
        let held = xact::begin(&mut conn, request).await.unwrap();
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    }
    db.until_quiet().await;
}

#[tokio::test]
async fn a_pooler_in_session_mode_is_accepted_once_it_was_verified() {
    if !is_alone("a_pooler_in_session_mode_is_accepted_once_it_was_verified") {
        return;
    }
    let db = Database::create().await;
    let Some(bouncer) = bouncer(&db, "session").await else {
        return;
    };
    is_refused(&db, &bouncer.url(&db)).await;
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(bouncer.url(&db));
    let pool = Pool::builder(manager).max_size(2).build().unwrap();
    session::verify(&pool).await.unwrap();
    report(&mut pool.get().await.unwrap()).await.unwrap();
    report(&mut connect(&bouncer.url(&db)).await).await.unwrap();
    db.until_no_locks().await;
}

#[tokio::test]
async fn a_pooler_is_accepted_where_the_database_says_that_it_is_in_session_mode() {
    if !is_alone("a_pooler_is_accepted_where_the_database_says_that_it_is_in_session_mode") {
        return;
    }
    let db = Database::create().await;
    let Some(bouncer) = bouncer(&db, "session").await else {
        return;
    };
    db.run(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET \"advisory.pooler\" = ''session''', current_database()); END $$",
    )
    .await;
    report(&mut connect(&bouncer.url(&db)).await).await.unwrap();
    let lock = session::acquire_owned(connect(&bouncer.url(&db)).await, 7).await;
    drop(lock.unwrap().release().await.unwrap());
    db.until_no_locks().await;
}

/// Drops a call while it waits for a lock that somebody else holds; its wait ends while that is held.
async fn drop_a_wait(db: &Database, url: &str) {
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let mut conn = connect(url).await;
    let bounded = Request::new(7).wait(Duration::from_secs(1));
    tokio::select! {
        biased;
        _ = xact::begin(&mut conn, bounded) => panic!("it did not wait"),
        () = db.until_waiting(7) => {}
    }
    let error = xact::begin(&mut conn, 8).await.unwrap_err();
    assert!(matches!(error, Error::BrokenConnection { .. }), "{error:?}");
    db.until_no_waiters(7).await;
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
}

#[advisory_lock(key = "slow", max_hold = "100ms")]
async fn slow(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(conn.batch_execute("SELECT pg_sleep(600)").await?)
}

/// As behind a proxy that passes on no cancel request: none is sent, waits end by their budget, and it counts as a pooler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_server_tells_no_process_id_nothing_is_cancelled_and_sessions_have_to_be_verified()
 {
    if !is_alone(
        "where_the_server_tells_no_process_id_nothing_is_cancelled_and_sessions_have_to_be_verified",
    ) {
        return;
    }
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    drop_a_wait(&db, proxy.url()).await;
    let requests = proxy.cancel_requests();
    assert!(requests > 0, "the control sends none");

    let proxy = Proxy::start(&db).await;
    proxy.hide_cancel_keys();
    is_refused(&db, proxy.url()).await;
    let mut conn = connect(proxy.url()).await;
    let error = report(&mut conn).await.unwrap_err();
    assert!(error.to_string().contains("process id"), "{error}");
    let held = xact::begin(&mut conn, 7).await.unwrap();
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    drop_a_wait(&db, proxy.url()).await;
    let error = slow(&mut conn).await.unwrap_err();
    assert!(matches!(error, Error::HoldExceeded { .. }), "{error:?}");
    // The server looks for its client while a call with `max_hold` runs.
    drop(conn);
    db.until_quiet().await;

    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(proxy.url());
    let pool = Pool::builder(manager).max_size(2).build().unwrap();
    session::verify(&pool).await.unwrap();
    report(&mut pool.get().await.unwrap()).await.unwrap();
    migrations::run(proxy.url(), EmbeddedMigrations::new(&[]))
        .await
        .unwrap();
    db.until_no_locks().await;
    assert_eq!(proxy.cancel_requests(), 0);
}
