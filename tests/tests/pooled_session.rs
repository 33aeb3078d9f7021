//! A session-level lock behind an undetected pooler. A binary of its own: the result of the
//! detection is kept for the process, so each test starts this binary again for itself.
#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on fails the test"
)]

use advisory_runtime::migrations::{self, Migrator};
use advisory_runtime::{Error, Isolation, Request, Wait, advisory_lock, session, xact};
use advisory_tests::futures::dropped;
use advisory_tests::statements::run;
use advisory_tests::{
    Bouncer, DEBUG_CHECKS, Database, Odyssey, OwnServer, Pgpool, Proxy, Standby, assert_error,
    assert_matches, left_out, owns_server, pid_of, poolers, share_template,
};
use diesel::sql_types::Text;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::EmbeddedMigrations;
use std::process::Command;
use std::time::Duration;

/// The test that the process runs.
const TEST: &str = "ADVISORY_TEST_OF_THIS_PROCESS";

/// Whether this process is the one for this test; if not, starts one with these variables.
fn is_alone(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var(TEST).is_ok_and(|own| own == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(TEST, test)
        .envs(variables.iter().copied());
    share_template(&mut command);
    assert!(command.status().unwrap().success(), "{test}");
    false
}

/// A database, if this process is the one for the function in which the closure is.
async fn alone_in<F: Fn()>(_: F) -> Option<Database> {
    let test = std::any::type_name::<F>().split("::").nth(1).unwrap();
    if is_alone(test, &[]) {
        return Some(Database::create().await);
    }
    None
}

/// A database, if this process is the one for this test.
macro_rules! alone {
    () => {
        alone_in(|| {})
    };
}

async fn bouncer(db: &Database, mode: &str) -> Option<Bouncer> {
    poolers::bouncer(db, &format!("pool_mode = {mode}\ndefault_pool_size = 4")).await
}

/// Repeated if the set-up's prepared statements reached another server session.
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

/// Every form of a session-level lock is refused, and leaves nothing on the server.
async fn is_refused(db: &Database, url: &str) {
    let mut conn = connect(url).await;
    for wait in [Wait::Session, Wait::Never, Wait::Forever] {
        for request in requests() {
            let request = request.wait(wait);
            let refused = session::acquire(&mut conn, request.clone()).await;
            let error = refused.unwrap_err();
            assert_error!(error, PooledSession);
            assert!(error.to_string().contains("session::verify"), "{error}");
            let refused = session::acquire_owned(conn, request.clone()).await;
            let failed = refused.unwrap_err();
            assert_error!(failed.error, PooledSession);
            conn = *failed.connection;
            // A stricter level acquires a session-level lock first.
            for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
                let strict = request.clone().isolation(isolation);
                assert_error!(xact::begin(&mut conn, strict).await, PooledSession);
            }
        }
    }
    assert_error!(report(&mut conn).await, PooledSession);
    for wait in [Wait::Session, Wait::Never] {
        let mut conn = connect(url).await;
        conn.begin_test_transaction().await.unwrap();
        let refused = session::acquire(&mut conn, Request::new(7).wait(wait)).await;
        assert_error!(refused.map(drop), PooledSession);
        // The test goes on.
        run(&mut conn, "SELECT 1").await;
    }
    let error = nothing_to_migrate(url).await.unwrap_err();
    assert_matches!(error, migrations::Error::Pooler);
    assert_eq!(db.locks().await, []);
}

async fn nothing_to_migrate(url: &str) -> Result<(), migrations::Error> {
    let nothing = Migrator::new(EmbeddedMigrations::new(&[]));
    nothing.run_on(connect(url).await).await.map(drop)
}

/// One for each form of the statement that acquires the lock.
fn requests() -> Vec<Request> {
    let polls = Request::new(7).poll(Duration::from_millis(10));
    let bounded = Request::new(7).max_hold(Duration::from_secs(60));
    vec![
        Request::new(7),
        Request::new((7, 8)),
        Request::all([7, 8]).shared(),
        Request::all(0..600),
        Request::new(7).permits(3),
        polls,
        bounded,
    ]
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_at_the_first_call() {
    let Some(db) = alone!().await else { return };
    let Some(bouncer) = bouncer(&db, "transaction").await else {
        return;
    };
    is_refused(&db, &bouncer.url(&db)).await;
    // A first call without a pooler does not decide for the others.
    report(&mut db.connect().await).await.unwrap();
    session::verify(&db.deadpool(2)).await.unwrap();
    is_refused(&db, &bouncer.url(&db)).await;
    // Requests that need no session still work.
    let mut conn = connect(&bouncer.url(&db)).await;
    let held = xact::begin(&mut conn, 9).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

/// Process ids as from poolers that number their clients, each in its way.
#[tokio::test]
async fn a_pooler_that_numbers_its_clients_is_refused() {
    let Some(db) = alone!().await else { return };
    let Some(bouncer) = bouncer(&db, "transaction").await else {
        return;
    };
    // Only the first call of a process is preceded by a check.
    report(&mut db.connect().await).await.unwrap();
    // PgDog counts from 0, Supavisor from a small number; Odyssey and SPQR draw 31 bits, and PgCat,
    // as pgbouncer, 32.
    for first in [0, 1, 1 << 30, 0xF000_0000_u32] {
        let proxy = Proxy::before(&bouncer.url(&db)).await;
        proxy.renumber(first..);
        is_refused(&db, proxy.url()).await;
    }
    db.until_quiet().await;
}

/// Numbers that are process ids on the server, of other sessions.
#[tokio::test]
async fn a_number_that_is_another_backends_process_id_is_refused() {
    let Some(db) = alone!().await else { return };
    let Some(bouncer) = bouncer(&db, "transaction").await else {
        return;
    };
    let mut other = db.connect().await;
    let other = u32::try_from(pid_of(&mut other).await).unwrap();
    let proxy = Proxy::before(&bouncer.url(&db)).await;
    proxy.renumber(std::iter::repeat(other));
    is_refused(&db, proxy.url()).await;
    db.until_quiet().await;
}

#[tokio::test]
async fn a_renumbering_session_mode_pooler_is_accepted_when_verified() {
    let Some(db) = alone!().await else { return };
    let Some(bouncer) = bouncer(&db, "session").await else {
        return;
    };
    let proxy = Proxy::before(&bouncer.url(&db)).await;
    proxy.renumber(1..);
    is_refused(&db, proxy.url()).await;
    let pool = Database::deadpool_at(proxy.url(), 2);
    session::verify(&pool).await.unwrap();
    are_taken(&mut pool.get().await.unwrap()).await;
    // The result is that of the address, not of the pool.
    report(&mut connect(proxy.url()).await).await.unwrap();
    db.until_no_locks().await;
}

#[tokio::test]
async fn a_pooler_that_renumbers_is_accepted_by_its_setting() {
    let Some(db) = alone!().await else { return };
    let Some(bouncer) = bouncer(&db, "session").await else {
        return;
    };
    db.set("\"advisory.pooler\" = 'session'").await;
    let proxy = Proxy::before(&bouncer.url(&db)).await;
    proxy.renumber(1..);
    nothing_to_migrate(proxy.url()).await.unwrap();
    are_taken(&mut connect(proxy.url()).await).await;
    let lock = session::acquire_owned(connect(proxy.url()).await, 7).await;
    drop(lock.unwrap().finish(Ok::<_, Error>(())).await.unwrap());
    db.until_no_locks().await;
}

/// Acquires and releases a lock in each form.
async fn are_taken(conn: &mut AsyncPgConnection) {
    for request in requests() {
        for wait in [Wait::Session, Wait::Never] {
            let request = request.clone().wait(wait);
            let held = session::acquire(conn, request.clone()).await.unwrap();
            held.finish(Ok::<_, Error>(())).await.unwrap();
            let strict = request.isolation(Isolation::Serializable);
            let held = xact::begin(conn, strict).await.unwrap();
            held.finish(Ok::<_, Error>(())).await.unwrap();
        }
    }
}

/// The pooler gives the connection another session of the server while it holds its lock.
#[tokio::test]
async fn a_release_that_another_backend_answers_releases_nothing() {
    let Some(db) = alone!().await else { return };
    let settings = "pool_mode = transaction\ndefault_pool_size = 2";
    let Some(bouncer) = poolers::bouncer(&db, settings).await else {
        return;
    };
    let mut first = connect(&bouncer.url(&db)).await;
    let mut second = connect(&bouncer.url(&db)).await;
    run(&mut first, "BEGIN").await;
    let own = u32::try_from(pid_of(&mut first).await).unwrap();
    let proxy = Proxy::before(&bouncer.url(&db)).await;
    proxy.renumber(std::iter::repeat(own));
    let mut conn = connect(proxy.url()).await;
    // The backend whose id the connection was told is the only free one.
    run(&mut second, "BEGIN;SELECT pg_advisory_lock_shared(7)").await;
    run(&mut first, "ROLLBACK").await;
    let request = Request::new(7).shared();
    let held = session::acquire(&mut conn, request).await.unwrap();
    // From now on the other one is free, which holds the lock for another client.
    run(&mut first, "BEGIN").await;
    assert_eq!(u32::try_from(pid_of(&mut first).await), Ok(own));
    run(&mut second, "COMMIT").await;
    assert_error!(held.finish(Ok::<_, Error>(())).await, LockLost);
    assert_eq!(db.locks().await.len(), 2, "the other client's was released");
    run(&mut first, "ROLLBACK").await;
}

/// Another client of a pooler can have prepared a statement of the same name in the session. So can
/// the program itself.
#[tokio::test]
async fn a_statement_that_fails_shows_a_pooler_only_behind_one() {
    let Some(db) = alone!().await else { return };
    let proxy = Proxy::start(&db).await;
    proxy.replace("NOT pg_catalog.pg_backend_pid", "SELECT no_such_column");
    let error = nothing_to_migrate(proxy.url()).await.unwrap_err();
    assert!(!matches!(error, migrations::Error::Pooler), "{error:?}");
    // Only the first call of a process is preceded by a check.
    report(&mut connect(proxy.url()).await).await.unwrap();
    for is_pooled in [false, true] {
        if is_pooled {
            proxy.renumber(1..);
        }
        let tried = Request::new(7).wait(Wait::Never);
        let bounded = Request::new(7).max_hold(Duration::from_secs(60));
        for request in [tried, bounded] {
            let mut conn = connect(proxy.url()).await;
            take_names(&mut conn).await;
            let error = session::acquire(&mut conn, request).await.unwrap_err();
            let said = matches!(error, Error::PooledSession { .. });
            assert_eq!(said, is_pooled, "{error:?}");
        }
    }
    let mut config = ManagerConfig::default();
    config.custom_setup = Box::new(|url| {
        Box::pin(async move {
            let mut conn = connect(url).await;
            take_names(&mut conn).await;
            Ok(conn)
        })
    });
    let manager = AsyncDieselConnectionManager::new_with_config(proxy.url(), config);
    let pool = Pool::builder(manager).max_size(2).build().unwrap();
    assert_error!(session::verify(&pool).await, PooledSession);
    drop(pool);
    db.until_no_locks().await;
}

/// More names than this process gives to its statements.
async fn take_names(conn: &mut AsyncPgConnection) {
    let names = (0..1000).map(|name| format!("PREPARE s{name} AS SELECT 1"));
    let names: Vec<String> = names.collect();
    run(conn, &format!("DEALLOCATE ALL;{}", names.join(";"))).await;
}

/// Another backend does not hold the key for the session, and would wait for the one that does.
#[tokio::test]
async fn a_strict_try_compares_the_backend_once_more() {
    let Some(db) = alone!().await else { return };
    let proxy = Proxy::start(&db).await;
    let mut conn = connect(proxy.url()).await;
    let strict = Request::new(7)
        .wait(Wait::Never)
        .isolation(Isolation::Serializable);
    let held = xact::begin(&mut conn, strict.clone()).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    let queries = proxy.queries();
    let opens = |query: &&String| query.starts_with("BEGIN ISOLATION LEVEL");
    let opening = queries.iter().find(opens).unwrap();
    assert!(opening.contains("pg_backend_pid"), "{opening}");
    proxy.replace(
        "BEGIN ISOLATION LEVEL",
        "SELECT CAST('advisory:pooled-session' AS int4)",
    );
    assert_error!(xact::begin(&mut conn, strict).await, PooledSession);
    drop(conn);
    db.until_no_locks().await;
}

/// Without a pooler. `DEALLOCATE ALL` removes the statement from the session, and not from Diesel's
/// cache.
#[tokio::test]
async fn a_release_is_prepared_once_and_a_text_without_it() {
    let Some(db) = alone!().await else { return };
    let proxy = Proxy::start(&db).await;
    let mut conn = connect(proxy.url()).await;
    for (before, expected) in [("", 2), ("", 1), ("DEALLOCATE ALL", 2)] {
        let mut held = session::acquire(&mut conn, 7).await.unwrap();
        run(held.conn(), before).await;
        proxy.reset();
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(proxy.round_trips(), expected, "{:#?}", proxy.queries());
        assert_eq!(db.locks().await, []);
    }
    let permit = Request::new(7).permits(3).wait(Wait::Never);
    let mut conn = connect(proxy.url()).await;
    let held = session::acquire(&mut conn, permit).await.unwrap();
    proxy.reset();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(proxy.queries(), [""; 0], "a permit is one key");
    assert_eq!(db.locks().await, []);
}

/// A pooler forwards a cancel request to the session that serves its client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_wait_is_cancelled_by_its_reported_process_id() {
    let Some(db) = alone!().await else { return };
    let proxy = Proxy::start(&db).await;
    proxy.renumber(1..);
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let mut conn = connect(proxy.url()).await;
    dropped(xact::begin(&mut conn, 7), db.until_waiting(7)).await;
    db.until_no_waiters(7).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

/// Drops a call while it waits for a lock that another session holds; its wait ends while that is
/// held.
async fn drop_a_wait(db: &Database, url: &str) {
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let mut conn = connect(url).await;
    let bounded = Request::new(7).wait(Duration::from_secs(1));
    dropped(xact::begin(&mut conn, bounded), db.until_waiting(7)).await;
    assert_error!(xact::begin(&mut conn, 8).await, BrokenConnection);
    db.until_no_waiters(7).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[advisory_lock(key = "slow", max_hold = "100ms")]
async fn slow(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(conn.batch_execute("SELECT pg_sleep(600)").await?)
}

/// As behind a proxy that forwards no cancel requests: none is sent, waits end by their budget, and
/// it counts as a pooler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_process_ids_sessions_must_be_verified() {
    let Some(db) = alone!().await else { return };
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
    held.finish(Ok::<_, Error>(())).await.unwrap();
    drop_a_wait(&db, proxy.url()).await;
    assert_error!(slow(&mut conn).await, HoldExceeded);
    // The server checks its client while a call with `max_hold` runs.
    drop(conn);
    db.until_quiet().await;

    let pool = Database::deadpool_at(proxy.url(), 2);
    session::verify(&pool).await.unwrap();
    report(&mut pool.get().await.unwrap()).await.unwrap();
    migrations::run(proxy.url(), EmbeddedMigrations::new(&[]))
        .await
        .unwrap();
    db.until_no_locks().await;
    assert_eq!(proxy.cancel_requests(), 0);
}

/// Pgpool-II tells a client the process id of the server session that it uses for it.
#[tokio::test]
async fn behind_pgpool_no_verification_is_needed() {
    let Some(db) = alone!().await else { return };
    let pgpool = match Pgpool::start(&db).await {
        Ok(pgpool) => pgpool,
        Err(why) => return left_out("pgpool", why),
    };
    are_taken(&mut connect(&pgpool.url(&db)).await).await;
    db.until_no_locks().await;
}

/// Pgpool-II tells a client the backend of the server that it reads from, here the standby. Locks
/// are taken on the primary, so the comparison fails until the setting declares session mode.
#[tokio::test]
async fn behind_a_balancing_pgpool_locks_are_on_the_primary() {
    let Some(_db) = alone!().await else { return };
    if !owns_server() {
        return left_out("pgpool", "the server is not our own");
    }
    let (primary, standby) = (OwnServer::start().await, Standby::start().await);
    let pgpool = match Pgpool::balancing(&primary, &standby, "").await {
        Ok(pgpool) => pgpool,
        Err(why) => return left_out("pgpool", why),
    };
    let on_primary = place(&mut connect(primary.url()).await).await;
    let on_standby = place(&mut connect(standby.url()).await).await;
    let mut conn = connect(&pgpool.address("postgres")).await;
    assert_eq!(place(&mut conn).await, on_standby);
    assert_error!(session::acquire(&mut conn, 7).await, PooledSession);
    run(&mut conn, "SET advisory.pooler = 'session'").await;
    for request in [
        Request::new(7).isolation(Isolation::RepeatableRead),
        Request::new(7).isolation(Isolation::Serializable),
        Request::new(7),
        Request::new(7).wait(Wait::Never),
        Request::new(7).shared(),
        Request::all([6, 7, 8]),
    ] {
        let what = format!("{request:?}");
        let mut held = xact::begin(&mut conn, request).await.unwrap();
        assert_eq!(place(held.conn()).await, on_primary, "{what}");
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(place(&mut conn).await, on_standby, "{what}");
    }
    // Not in a transaction, so its reads may run on the standby, as the guide says. The check of
    // the lock does not.
    for request in requests() {
        let mut held = session::acquire(&mut conn, request).await.unwrap();
        assert_eq!(place(held.conn()).await, on_standby);
        let info = held.info();
        info.check(held.conn()).await.unwrap();
        held.finish(Ok::<_, Error>(())).await.unwrap();
    }
    let held = session::acquire(&mut conn, 7).await.unwrap();
    let mut other = connect(primary.url()).await;
    let missed = xact::begin(&mut other, Request::new(7).wait(Wait::Never)).await;
    assert_error!(missed, NotAvailable);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

/// With such a list Pgpool-II takes every other function for one that reads, so it would take a
/// lock on the primary only if a comment is in front of the statement, and never release it there.
#[tokio::test]
async fn a_pgpool_that_sends_the_release_to_a_standby_is_refused() {
    // A debug build refuses the standby itself.
    let test = "a_pgpool_that_sends_the_release_to_a_standby_is_refused";
    if !is_alone(test, &[(DEBUG_CHECKS, "off")]) {
        return;
    }
    if !owns_server() {
        return left_out("pgpool", "the server is not our own");
    }
    let (primary, standby) = (OwnServer::start().await, Standby::start().await);
    let lists = "write_function_list = 'currval,lastval,nextval,setval'";
    let pgpool = match Pgpool::balancing(&primary, &standby, lists).await {
        Ok(pgpool) => pgpool,
        Err(why) => return left_out("pgpool", why),
    };
    let mut conn = connect(&pgpool.address("postgres")).await;
    assert_error!(report(&mut conn).await, PooledSession);
    let mut other = connect(primary.url()).await;
    report(&mut other).await.unwrap();
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_behind_pgpool_is_refused() {
    let Some(db) = alone!().await else { return };
    let Some(bouncer) = bouncer(&db, "transaction").await else {
        return;
    };
    let pgpool = match Pgpool::in_front_of(&bouncer.url(&db)).await {
        Ok(pgpool) => pgpool,
        Err(why) => return left_out("pgpool", why),
    };
    is_refused(&db, &pgpool.url(&db)).await;
    report(&mut db.connect().await).await.unwrap();
    is_refused(&db, &pgpool.url(&db)).await;
    db.until_quiet().await;
}

/// The folder of the server that answers read-only statements.
async fn place(conn: &mut AsyncPgConnection) -> String {
    let place = diesel::dsl::sql::<Text>("SELECT current_setting('data_directory')");
    place.get_result(conn).await.unwrap()
}

#[tokio::test]
async fn odyssey_in_transaction_mode_is_refused() {
    let Some(db) = alone!().await else { return };
    let rules =
        "pool \"transaction\"\npool_size 4\npool_reserve_prepared_statement yes\npool_discard no";
    let odyssey = match Odyssey::start(&db, rules).await {
        Ok(odyssey) => odyssey,
        Err(why) => return left_out("odyssey", why),
    };
    is_refused(&db, &odyssey.url(&db)).await;
    let pool = Database::deadpool_at(odyssey.url(&db), 2);
    assert_error!(session::verify(&pool).await, PooledSession);
    db.until_no_locks().await;
}

#[tokio::test]
async fn odyssey_in_session_mode_is_accepted_when_verified() {
    let Some(db) = alone!().await else { return };
    let odyssey = match Odyssey::start(&db, "pool \"session\"\npool_size 8").await {
        Ok(odyssey) => odyssey,
        Err(why) => return left_out("odyssey", why),
    };
    is_refused(&db, &odyssey.url(&db)).await;
    let pool = Database::deadpool_at(odyssey.url(&db), 2);
    session::verify(&pool).await.unwrap();
    are_taken(&mut pool.get().await.unwrap()).await;
    db.until_no_locks().await;
}
