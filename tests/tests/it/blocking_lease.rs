//! Leases of blocking Diesel: a program without a runtime, whose bodies cannot be dropped, and whose
//! pool opens no connection outside of its count. What is granted, renewed and ended is shown with
//! async Diesel: the engine and the statements are the same.

use advisory_runtime::blocking::lease::{self, Error, Lease, LeaseGuard, Leases, Table};
use advisory_runtime::{LockKey, blocking};
use advisory_tests::blocking::{count, execute};
use advisory_tests::leases::{BRIEF, Events, GENEROUS, HOUR, database, key, until_refused};
use advisory_tests::pauses::pause_thread;
use advisory_tests::{Database, Proxy, assert_matches};
use diesel::r2d2::{ConnectionManager, Pool, TestCustomizer};
use diesel::{Connection, PgConnection};
use std::thread;
use std::time::{Duration, Instant};

fn until(mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < GENEROUS, "waited too long");
        pause_thread();
    }
}

fn until_lost(lease: &Lease) {
    until(|| !lease.is_held());
}

/// Runs on a thread without a tokio runtime, as in a blocking program.
fn without_a_runtime<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    let ran = thread::scope(|scope| scope.spawn(test).join());
    ran.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_lease_is_renewed_until_its_body_returns() {
    let db = database().await;
    let (pool, mut conn) = (db.r2d2(2), db.establish());
    without_a_runtime(|| {
        let request = || key("k").ttl(Duration::from_millis(500));
        let mut guard = lease::acquire(&pool, request()).unwrap();
        let ran = guard.run(|| {
            // Three times as long as it was granted for.
            let renewed = "SELECT count(*) FROM advisory_lease \
                           WHERE expires_at > acquired_at + interval '1.5 s'";
            until(|| count(&mut conn, renewed) == Ok(1));
            7
        });
        assert_eq!(ran.unwrap(), 7);
        guard.finish(Ok::<_, Error>(())).unwrap();
        assert_eq!(Leases::new(pool).list().unwrap(), []);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_body_that_returns_too_late_is_refused() {
    let db = database().await;
    let (pool, mut conn) = (db.r2d2(2), db.establish());
    without_a_runtime(|| {
        let mut guard = lease::acquire(&pool, key("k").renew(BRIEF)).unwrap();
        let lease = guard.lease().clone();
        let ran = guard.run(|| {
            let expire = "UPDATE advisory_lease SET expires_at = clock_timestamp()";
            execute(&mut conn, expire).unwrap();
            until_lost(&lease);
        });
        assert_matches!(ran, Err(Error::Lost { .. }));
        let fenced = conn.transaction(|conn| lease.fence(conn));
        assert_matches!(fenced, Err(Error::Lost { .. }));
        let outside = lease.fence(&mut conn);
        assert_matches!(outside, Err(Error::NotInTransaction { .. }));
        assert_matches!(guard.finish(Ok(())), Err(Error::Lost { .. }));
        let request = key("k").max_hold(Duration::from_millis(50));
        let mut guard = lease::acquire(&pool, request).unwrap();
        let ran = guard.run(|| execute(&mut conn, "SELECT pg_sleep(0.06)"));
        assert_matches!(ran, Err(Error::HoldExceeded { .. }));
        // It was released.
        drop(lease::acquire(&pool, key("k")).unwrap());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_work_is_completed_once_and_a_rollback_is_refused() {
    let db = database().await;
    let (pool, mut conn, table) = (db.r2d2(2), db.establish(), Table::new());
    without_a_runtime(|| {
        let acquire = || lease::acquire(&pool, key("k").keep(HOUR));
        let guard = acquire().unwrap();
        let undone = conn.transaction(|conn| {
            guard.lease().complete(conn)?;
            Err::<(), Error>(diesel::result::Error::RollbackTransaction.into())
        });
        undone.unwrap_err();
        assert_matches!(guard.finish(Ok(())), Err(Error::RolledBack { .. }));
        let guard = acquire().unwrap();
        let completed = conn.transaction(|conn| guard.lease().complete(conn));
        completed.unwrap();
        assert!(acquire().unwrap_err().is_done());
        guard.finish(Ok::<_, Error>(())).unwrap();
        let done = table.find(&mut conn, key("k")).unwrap().unwrap();
        assert!(table.free(&mut conn, &done).unwrap());
        drop(acquire().unwrap());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_blocking_guard_and_a_panic_release_at_once() {
    let db = database().await;
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
    assert_eq!(lease::sweep(&pool).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_call_waits_for_the_holder_and_its_wait_has_an_end() {
    let db = database().await;
    let (pool, mut conn) = (db.r2d2(3), db.establish());
    let guard = lease::acquire(&pool, key("k")).unwrap();
    let waiter = thread::spawn({
        let pool = pool.clone();
        move || lease::acquire(&pool, key("k").wait(GENEROUS)).map(drop)
    });
    until_refused(&mut db.connect().await).await;
    without_a_runtime(|| {
        let since = Instant::now();
        let busy = lease::acquire(&pool, key("k").wait(BRIEF)).unwrap_err();
        assert!(busy.is_held() && since.elapsed() >= BRIEF, "{busy:?}");
        let holders = blocking::monitor::holders(&mut conn, &busy).unwrap();
        assert_eq!(holders.len(), 1, "{holders:?}");
        assert!(!waiter.is_finished(), "it did not wait");
        guard.finish(Ok::<_, Error>(())).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// A blocking pool opens no connection beside its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_blocking_pool_refuses_and_its_leases_are_lost() {
    let db = database().await;
    let pool = db.r2d2(1);
    without_a_runtime(|| {
        let request = || key("k").ttl(Duration::from_millis(400));
        let mut guard = lease::acquire(&pool, request()).unwrap();
        let lease = guard.lease().clone();
        let ran = guard.run(|| {
            let _conn = pool.get().unwrap();
            let other = lease::acquire(&pool, key("other").wait(BRIEF));
            assert_matches!(other, Err(Error::Pool(_)));
            until_lost(&lease);
        });
        assert_matches!(ran, Err(Error::Lost { .. }));
        drop(guard);
        drop(lease::acquire(&pool, request().wait(GENEROUS)).unwrap());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_call_ends_although_the_server_does_not_answer() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let events = Events::default();
    let leases = Leases::new(Database::r2d2_at(proxy.url(), 2)).observe(events.observer());
    without_a_runtime(|| {
        let request = key("k").ttl(Duration::from_millis(1500));
        let guard = leases.acquire(request).unwrap();
        proxy.stop_forwarding();
        let since = Instant::now();
        let other = key("other").wait(Duration::from_millis(100));
        assert_matches!(leases.acquire(other), Err(Error::Pool(_)));
        until_lost(guard.lease());
        assert_matches!(guard.finish(Ok(())), Err(Error::Lost { .. }));
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
    let conn = &mut conn;
    let named = advisory_runtime::lease::Table::new().named("app_lease");
    let table = Table::from(named.unwrap());
    without_a_runtime(|| {
        assert_matches!(table.list(conn), Err(Error::MissingTable { .. }));
        table.set_up(conn).unwrap();
        let leases = Leases::new(pool).table(table.clone());
        let report = Report { month: 7 };
        let mut guard = leases.acquire(&report).unwrap();
        let other = Report { month: 8 };
        let wrong = guard.run_holding(&other, |_| ());
        assert_matches!(wrong, Err(Error::NotHeld { .. }));
        guard.run_holding(&report, |_| ()).unwrap();
        let lease = guard.lease().clone();
        assert!(leases.holds(&lease).unwrap());
        assert!(table.set_data(conn, &lease, Some("here")).unwrap());
        let row = table.find(conn, &report).unwrap().unwrap();
        assert_eq!(row.data.as_deref(), Some("here"));
        let listed = [table.list(conn).unwrap(), leases.list().unwrap()];
        assert_eq!(listed.map(|rows| rows[0].token), [lease.token(); 2]);
        let taken = table.take_over(conn, &report, row.token).unwrap();
        let taken = taken.unwrap();
        assert!(taken.token() > lease.token() && !leases.holds(&lease).unwrap());
        assert!(table.release(conn, &taken).unwrap());
        assert_eq!(table.sweep(conn).unwrap(), 1);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_lease_works_in_the_transaction_of_a_test() {
    let db = database().await;
    let manager = ConnectionManager::<PgConnection>::new(db.url());
    let pool = Pool::builder().max_size(1);
    let pool = pool.connection_customizer(Box::new(TestCustomizer));
    let pool = pool.build(manager).unwrap();
    without_a_runtime(|| {
        let guard = lease::acquire(&pool, key("k").keep(HOUR)).unwrap();
        guard.finish(Ok::<_, Error>(())).unwrap();
        let done = lease::acquire(&pool, key("k")).unwrap_err();
        assert!(done.is_done(), "{done:?}");
    });
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}
