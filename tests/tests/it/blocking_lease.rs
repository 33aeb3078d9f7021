//! Blocking Diesel: leases that a thread renews while a blocking body runs.

use advisory_runtime::blocking::lease::{self, Error, Lease, LeaseGuard, Leases, Request, Table};
use advisory_runtime::{LockKey, blocking, monitor};
use advisory_tests::blocking::{count, execute};
use advisory_tests::leases::{Events, database, expire, key};
use advisory_tests::{Database, Proxy, assert_matches};
use diesel::Connection;
use diesel::pg::PgConnection;
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const GENEROUS: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn written(conn: &mut PgConnection) -> i64 {
    count(conn, "SELECT count(*) FROM written").unwrap()
}

async fn stage() -> Database {
    let db = database().await;
    db.run("CREATE TABLE written (what text)").await;
    db
}

fn write(conn: &mut PgConnection) -> Result<(), Error> {
    execute(conn, "INSERT INTO written VALUES ('x')").map_err(Error::Database)?;
    Ok(())
}

fn until(conn: &mut PgConnection, claim: &str) {
    let since = Instant::now();
    while count(conn, &format!("SELECT count(*) WHERE {claim}")).unwrap() == 0 {
        assert!(since.elapsed() < GENEROUS, "{claim}");
    }
}

fn until_lost(conn: &mut PgConnection, lease: &Lease) {
    let since = Instant::now();
    while lease.is_held() {
        execute(conn, "SELECT 1").unwrap();
        assert!(since.elapsed() < GENEROUS);
    }
}

/// Runs on a thread without a tokio runtime, as in a blocking program.
fn without_a_runtime<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    let ran = thread::scope(|scope| scope.spawn(test).join());
    ran.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_lease_is_renewed_until_its_body_returns() {
    let db = stage().await;
    let (pool, mut conn) = (db.r2d2(2), db.establish());
    without_a_runtime(|| {
        let request = || key("k").ttl(Duration::from_millis(500));
        let mut guard = lease::acquire(&pool, request()).unwrap();
        let busy = lease::acquire(&pool, request()).unwrap_err();
        assert!(busy.is_held(), "{busy:?}");
        let ran = guard.run(|| {
            // Three times as long as it was granted for.
            until(
                &mut conn,
                "EXISTS (SELECT FROM advisory_lease WHERE expires_at > acquired_at + interval '1.5 s')",
            );
            7
        });
        assert_eq!(ran.unwrap(), 7);
        guard.finish(Ok::<_, Error>(())).unwrap();
        assert_eq!(Leases::new(pool.clone()).list().unwrap(), []);
        // Again, with a larger token.
        let first = guard_token(&pool);
        assert!(guard_token(&pool) > first);
    });
}

fn guard_token(pool: &r2d2::Pool<ConnectionManager<PgConnection>>) -> i64 {
    let guard = lease::acquire(pool, key("k")).unwrap();
    let token = guard.lease().token().get();
    guard.finish(Ok::<_, Error>(token)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_body_that_returns_too_late_is_refused() {
    let db = stage().await;
    let (pool, mut conn) = (db.r2d2(2), db.establish());
    let (sender, expired) = mpsc::channel();
    let body = thread::spawn(move || {
        let request = key("k").ttl(Duration::from_secs(2));
        let mut guard = lease::acquire(&pool, request).unwrap();
        let lease = guard.lease().clone();
        sender.send(()).unwrap();
        let ran = guard.run(|| until_lost(&mut conn, &lease));
        assert_matches!(ran, Err(Error::Lost { .. }));
        let fenced = conn.transaction(|conn| lease.fence(conn));
        assert_matches!(fenced, Err(Error::Lost { .. }));
        assert_matches!(guard.finish(Ok::<_, Error>(())), Err(Error::Lost { .. }));
        let outside = lease.fence(&mut conn);
        assert!(matches!(outside, Err(Error::NotInTransaction { .. })));
    });
    expired.recv().unwrap();
    expire(&db).await;
    body.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_body_past_its_max_hold_is_refused_and_released() {
    let db = stage().await;
    let (pool, mut conn) = (db.r2d2(2), db.establish());
    without_a_runtime(|| {
        let request = key("k").max_hold(Duration::from_millis(50));
        let mut guard = lease::acquire(&pool, request).unwrap();
        let since = Instant::now();
        let ran = guard.run(|| {
            while since.elapsed() < Duration::from_millis(60) {
                execute(&mut conn, "SELECT 1").unwrap();
            }
        });
        assert_matches!(ran, Err(Error::HoldExceeded { .. }));
        drop(lease::acquire(&pool, key("k")).unwrap());
    });
}

/// A delivery: `Ok(false)` if the work is done.
fn credit(
    pool: &r2d2::Pool<ConnectionManager<PgConnection>>,
    conn: &mut PgConnection,
    is_undone: bool,
) -> Result<bool, Error> {
    let mut guard = match lease::acquire(pool, key("w").keep(DAY)) {
        Err(error) if error.is_done() => return Ok(false),
        acquired => acquired?,
    };
    let lease = guard.lease().clone();
    let result = guard.run(|| {
        let credited = conn.transaction(|conn| {
            lease.fence(conn)?;
            write(conn)?;
            lease.complete(conn)?;
            if is_undone {
                return Err(Error::Database(diesel::result::Error::RollbackTransaction));
            }
            Ok(())
        });
        // A body that swallows the error.
        drop(credited);
        Ok(true)
    })?;
    guard.finish(result)
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_work_is_completed_once_and_a_rollback_is_refused() {
    let db = stage().await;
    let (pool, mut conn) = (db.r2d2(2), db.establish());
    without_a_runtime(|| {
        assert_matches!(
            credit(&pool, &mut conn, true),
            Err(Error::RolledBack { .. })
        );
        assert!(credit(&pool, &mut conn, false).unwrap());
        assert!(!credit(&pool, &mut conn, false).unwrap());
        assert_eq!(written(&mut conn), 1);
        let guard = || lease::acquire(&pool, key("k").keep(DAY));
        let failed = Err::<(), _>(Error::Database(diesel::NotFound));
        let failed = guard().unwrap().finish(failed);
        assert!(matches!(failed, Err(Error::Database(diesel::NotFound))));
        guard().unwrap().finish(Ok::<_, Error>(())).unwrap();
        assert!(guard().unwrap_err().is_done());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_blocking_guard_and_a_panic_release_at_once() {
    let db = stage().await;
    let pool = db.r2d2(2);
    let panicked = thread::spawn({
        let pool = pool.clone();
        move || {
            let mut guard: LeaseGuard = lease::acquire(&pool, key("k")).unwrap();
            guard.run(|| panic!("the body's own panic"))
        }
    });
    assert!(panicked.join().is_err());
    // No wait: the drop has waited for the server.
    drop(lease::acquire(&pool, key("k")).unwrap());
    drop(lease::acquire(&pool, key("k")).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_call_waits_for_the_holder_and_its_wait_has_an_end() {
    let db = stage().await;
    let pool = db.r2d2(2);
    without_a_runtime(|| {
        let guard = lease::acquire(&pool, key("k")).unwrap();
        let short = Duration::from_millis(50);
        let since = Instant::now();
        let busy = lease::acquire(&pool, key("k").wait(short)).unwrap_err();
        assert!(busy.is_held() && since.elapsed() >= short, "{busy:?}");
        let holders = blocking::monitor::holders(&mut pool.get().unwrap(), &busy).unwrap();
        assert!(
            matches!(holders[..], [monitor::LockHolder { .. }]),
            "{holders:?}"
        );
        let waiter = thread::spawn({
            let pool = pool.clone();
            move || lease::acquire(&pool, key("k").wait(GENEROUS)).map(drop)
        });
        until(
            &mut db.establish(),
            "(SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'WITH free AS%' AND datname = current_database()) > 0",
        );
        guard.finish(Ok::<_, Error>(())).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// A blocking pool opens no connection beside its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_blocking_pool_refuses_and_its_leases_are_lost() {
    let db = stage().await;
    let pool = db.r2d2(1);
    without_a_runtime(|| {
        let request = || key("k").ttl(Duration::from_millis(400));
        let mut guard = lease::acquire(&pool, request()).unwrap();
        let lease = guard.lease().clone();
        let ran = guard.run(|| {
            let mut conn = pool.get().unwrap();
            let wait = Duration::from_millis(50);
            assert_matches!(
                lease::acquire(&pool, key("other").wait(wait)),
                Err(Error::Pool(_))
            );
            until_lost(&mut conn, &lease);
        });
        assert_matches!(ran, Err(Error::Lost { .. }));
        drop(guard);
        drop(lease::acquire(&pool, request().wait(GENEROUS)).unwrap());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_call_ends_although_the_server_does_not_answer() {
    let db = stage().await;
    let proxy = Proxy::start(&db).await;
    let manager = ConnectionManager::<PgConnection>::new(proxy.url());
    let pool = r2d2::Pool::builder().max_size(2).build(manager).unwrap();
    let events = Events::default();
    let leases = Leases::new(pool).observe(events.observer());
    without_a_runtime(|| {
        let request = key("k").ttl(Duration::from_millis(1500));
        let guard = leases.acquire(request).unwrap();
        let lease = guard.lease().clone();
        proxy.stop_forwarding();
        let since = Instant::now();
        let other = key("other").wait(Duration::from_millis(100));
        assert_matches!(leases.acquire(other), Err(Error::Pool(_)));
        until_lost(&mut db.establish(), &lease);
        assert_matches!(guard.finish(Ok::<_, Error>(())), Err(Error::Lost { .. }));
        assert!(since.elapsed() < GENEROUS, "{:?}", since.elapsed());
        proxy.resume_forwarding();
    });
    for name in ["Acquired", "RenewalFailed", "EndFailed"] {
        assert!(events.count(name) > 0, "{events:?}");
    }
}

#[derive(LockKey)]
#[lock_key("blocking-report:<month>")]
struct Report {
    month: u32,
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_of_the_table_runs_on_a_blocking_connection() {
    let db = Database::create().await;
    let (pool, mut conn) = (db.r2d2(2), db.establish());
    let named = || {
        advisory_runtime::lease::Table::new()
            .named("app_lease")
            .unwrap()
    };
    let table = Table::from(named());
    without_a_runtime(|| {
        assert_matches!(table.list(&mut conn), Err(Error::MissingTable { .. }));
        for _ in 0..2 {
            table.set_up(&mut conn).unwrap();
        }
        let leases = Leases::new(pool.clone()).table(table.clone());
        let report = Report { month: 7 };
        let mut guard = leases.acquire(&report).unwrap();
        let other = Report { month: 8 };
        let wrong = guard.run_holding(&other, |_| ());
        assert_matches!(wrong, Err(Error::NotHeld { .. }));
        guard.run_holding(&report, |_| ()).unwrap();
        let lease = guard.lease().clone();
        assert!(leases.holds(&lease).unwrap());
        assert!(table.set_data(&mut conn, &lease, Some("here")).unwrap());
        let row = table.find(&mut conn, &report).unwrap().unwrap();
        assert_eq!(row.data.as_deref(), Some("here"));
        assert_eq!(row.pattern.as_deref(), Some("blocking-report:<month>"));
        let listed = [table.list(&mut conn).unwrap(), leases.list().unwrap()];
        assert_eq!(listed.map(|rows| rows[0].token), [lease.token(); 2]);
        let seen = blocking::monitor::leases(&mut conn, &table, &monitor::Names::none()).unwrap();
        assert_eq!(seen.len(), 1);
        let taken = table.take_over(&mut conn, &report, row.token).unwrap();
        let taken = taken.unwrap();
        assert!(taken.token() > lease.token());
        assert!(!leases.holds(&lease).unwrap());
        let again = table.take_over(&mut conn, &report, row.token).unwrap();
        assert!(again.is_none());
        assert!(table.release(&mut conn, &taken).unwrap());
        assert_eq!(table.sweep(&mut conn).unwrap(), 1);
        let in_transaction = conn.transaction(|conn| table.sweep(conn));
        assert!(matches!(in_transaction, Err(Error::InTransaction { .. })));
        assert_matches!(lease::sweep(&pool), Err(Error::MissingTable { .. }));
        Table::new().set_up(&mut conn).unwrap();
        assert_eq!(lease::sweep(&pool).unwrap(), 0);
        drop(guard);
    });
}

/// Begins the transaction of a test on the pool's only connection.
#[derive(Debug)]
struct InTest;

impl CustomizeConnection<PgConnection, r2d2::Error> for InTest {
    fn on_acquire(&self, conn: &mut PgConnection) -> Result<(), r2d2::Error> {
        conn.begin_test_transaction()
            .map_err(r2d2::Error::QueryError)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_lease_works_in_the_transaction_of_a_test() {
    let db = stage().await;
    let manager = ConnectionManager::<PgConnection>::new(db.url());
    let pool = r2d2::Pool::builder()
        .max_size(1)
        .connection_customizer(Box::new(InTest))
        .build(manager)
        .unwrap();
    without_a_runtime(|| {
        let guard = lease::acquire(&pool, Request::text("k").keep(DAY)).unwrap();
        guard.finish(Ok::<_, Error>(())).unwrap();
        let done = lease::acquire(&pool, key("k")).unwrap_err();
        assert!(done.is_done(), "{done:?}");
    });
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}
