//! Two tasks that acquire two locks in opposite orders on separate connections: debug builds refuse
//! the call that closes the cycle, and name both sides. A wait with a limit is not a deadlock.

use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::bookings::{database, execute};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::{assert_matches, debug_checks_are_on};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;
use std::time::Duration;
use tokio::sync::Barrier;

type Pooled = Pool<AsyncPgConnection>;

/// Defines a function that takes one lock, and in its body waits for the other side and takes the
/// other lock.
macro_rules! pair {
    ($outer:ident, $inner:ident, [$($outer_args:tt)*], [$($inner_args:tt)*]) => {
        #[advisory_lock(key = "crossed:<from>", name = "crossed", conn = pool.get().await.unwrap(), $($outer_args)*)]
        async fn $outer(pool: &Pooled, from: i64, to: i64, meet: &Barrier) -> Result<(), Error> {
            execute(&mut conn, "SELECT 1").await?;
            meet.wait().await;
            $inner(pool, to).await
        }

        #[advisory_lock(key = "crossed:<to>", name = "crossed", conn = pool.get().await.unwrap(), $($inner_args)*)]
        async fn $inner(pool: &Pooled, to: i64) -> Result<(), Error> {
            execute(&mut conn, "SELECT 1").await.map(drop).map_err(Error::Database)
        }
    };
}

pair!(by_xact, then_xact, [wait = "10m"], []);
pair!(
    by_session,
    then_session,
    [scope = "session"],
    [scope = "session"]
);
pair!(
    by_strict,
    then_strict,
    [],
    [isolation = "serializable", wait = "forever"]
);
pair!(by_queue, then_queue, [queue = 8, wait = "10m"], [queue = 8]);
pair!(
    by_shared,
    then_exclusive,
    [mode = "shared", wait = "10m"],
    []
);
pair!(by_bounded, then_bounded, [], [wait = "100ms"]);
pair!(
    by_poll,
    then_poll,
    [wait = "10m", poll = "1ms"],
    [poll = "1ms"]
);
pair!(
    by_shared_only,
    then_shared,
    [mode = "shared"],
    [mode = "shared"]
);

async fn both<A, B>(one: A, other: B) -> [Result<(), Error>; 2]
where
    A: Future<Output = Result<(), Error>>,
    B: Future<Output = Result<(), Error>>,
{
    let (one, other) =
        tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(one, other) })
            .await
            .expect("the two wait for each other");
    [one, other]
}

fn assert_one_is_refused(ends: [Result<(), Error>; 2], functions: [&str; 2]) {
    let (errors, fine): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_err);
    assert_eq!([errors.len(), fine.len()], [1, 1], "{errors:?}");
    match &errors[0] {
        Err(Error::TaskDeadlock { cycle, .. }) => {
            for function in functions {
                let named = format!("`{function}` (");
                assert_eq!(cycle.matches(&named).count(), 2, "{function}: {cycle}");
            }
            assert!(cycle.contains("waits for `"), "{cycle}");
        }
        error => panic!("{error:?}"),
    }
}

macro_rules! crossed {
    ($pool:expr, $one:ident, $other:ident, $keys:expr) => {{
        let (meet, [a, b]) = (Barrier::new(2), $keys);
        both($one(&$pool, a, b, &meet), $other(&$pool, b, a, &meet)).await
    }};
}

#[tokio::test]
async fn the_call_that_closes_a_cycle_of_two_tasks_is_refused() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let pool = db.deadpool(4);
    for _ in 0..3 {
        let ends = crossed!(pool, by_xact, by_xact, [1, 2]);
        assert_one_is_refused(ends, ["by_xact", "then_xact"]);
        let ends = crossed!(pool, by_session, by_session, [1, 2]);
        assert_one_is_refused(ends, ["by_session", "then_session"]);
        let ends = crossed!(pool, by_strict, by_strict, [1, 2]);
        assert_one_is_refused(ends, ["by_strict", "then_strict"]);
        let ends = crossed!(pool, by_shared, by_shared, [1, 2]);
        assert_one_is_refused(ends, ["by_shared", "then_exclusive"]);
        let ends = crossed!(pool, by_poll, by_poll, [1, 2]);
        assert_one_is_refused(ends, ["by_poll", "then_poll"]);
        // In queues, which belong to the process: with keys that only this test uses.
        let ends = crossed!(pool, by_queue, by_queue, [711, 712]);
        assert_one_is_refused(ends, ["by_queue", "then_queue"]);
    }
    db.until_quiet().await;
}

/// The holders of both permits wait for a third permit. A permit that another call holds can become
/// free, so a single holder may wait.
#[tokio::test]
async fn holders_of_all_permits_that_ask_for_one_more_are_a_cycle() {
    #[advisory_lock(key = "few:<id>", name = "few", permits = 2, poll = "1ms", conn = pool.get().await.unwrap())]
    async fn first(pool: &Pooled, id: i64, meet: &Barrier) -> Result<(), Error> {
        execute(conn, "SELECT 1").await?;
        meet.wait().await;
        second(pool, id).await
    }
    #[advisory_lock(key = "few:<id>", name = "few", permits = 2, poll = "1ms", conn = pool.get().await.unwrap())]
    async fn second(pool: &Pooled, id: i64) -> Result<(), Error> {
        execute(conn, "SELECT 1")
            .await
            .map(drop)
            .map_err(Error::Database)
    }
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let pool = db.deadpool(4);
    let (meet, alone) = (Barrier::new(2), Barrier::new(1));
    let ends = both(first(&pool, 1, &meet), first(&pool, 1, &meet)).await;
    assert_one_is_refused(ends, ["first", "second"]);
    first(&pool, 1, &alone).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_threads_on_blocking_connections_are_found_too() {
    type Pooled = diesel::r2d2::Pool<diesel::r2d2::ConnectionManager<diesel::PgConnection>>;
    #[advisory_lock(key = "crossed:<from>", name = "crossed", conn = pool.get().unwrap())]
    fn outer(pool: &Pooled, from: i64, to: i64, meet: &std::sync::Barrier) -> Result<(), Error> {
        advisory_tests::blocking::execute(conn, "SELECT 1")?;
        meet.wait();
        inner(pool, to)
    }
    #[advisory_lock(key = "crossed:<to>", name = "crossed", conn = pool.get().unwrap())]
    fn inner(pool: &Pooled, to: i64) -> Result<(), Error> {
        advisory_tests::blocking::execute(conn, "SELECT 1")
            .map(drop)
            .map_err(Error::Database)
    }
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let pool = db.r2d2(4);
    let meet = std::sync::Arc::new(std::sync::Barrier::new(2));
    let side = |from: i64, to: i64| {
        let (pool, meet) = (pool.clone(), std::sync::Arc::clone(&meet));
        async move {
            let side = spawn_blocking(move || outer(&pool, from, to, &meet));
            side.await.unwrap()
        }
    };
    let ends = both(side(1, 2), side(2, 1)).await;
    assert_one_is_refused(ends, ["outer", "inner"]);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cycle_of_three_tasks_on_threads_is_found() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let pool = db.deadpool(6);
    let meet = std::sync::Arc::new(Barrier::new(3));
    let sides = [[1, 2], [2, 3], [3, 1]].map(|[from, to]| {
        let (pool, meet) = (pool.clone(), std::sync::Arc::clone(&meet));
        spawn(async move { by_xact(&pool, from, to, &meet).await })
    });
    let mut refused = 0;
    for side in sides {
        let end = tokio::time::timeout(Duration::from_secs(60), side).await;
        match end.expect("they wait for each other").unwrap() {
            Ok(()) => {}
            Err(Error::TaskDeadlock { cycle, .. }) => {
                assert_eq!(cycle.matches("waits for").count(), 3, "{cycle}");
                refused += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(refused, 1);
    db.until_quiet().await;
}

/// With and without the checks of debug builds.
#[tokio::test]
async fn a_wait_with_a_limit_closes_no_cycle() {
    let db = database().await;
    let pool = db.deadpool(4);
    for [one, two] in [[1, 2], [3, 4]] {
        let ends = crossed!(pool, by_bounded, by_bounded, [one, two]);
        assert!(
            ends.iter()
                .any(|end| matches!(end, Err(Error::TimedOut { .. }))),
            "{ends:?}"
        );
        for end in ends {
            assert_matches!(end, Ok(()) | Err(Error::TimedOut { .. }));
        }
    }
    // The limit of one side ends the other's wait too.
    let ends = crossed!(pool, by_bounded, by_xact, [1, 2]);
    assert_matches!(ends, [Err(Error::TimedOut { .. }), Ok(())]);
    // Shared locks do not exclude each other.
    let ends = crossed!(pool, by_shared_only, by_shared_only, [1, 2]);
    assert_matches!(ends, [Ok(()), Ok(())]);
    db.until_quiet().await;
}

#[tokio::test]
async fn the_sessions_own_timeout_is_a_limit() {
    let db = database().await;
    db.set("lock_timeout = '100ms'").await;
    let pool = db.deadpool(4);
    let ends = crossed!(pool, by_session, by_session, [1, 2]);
    for end in ends {
        assert_matches!(end, Ok(()) | Err(Error::TimedOut { .. }));
    }
    db.until_quiet().await;
}

/// The same numbers in two databases are four locks.
#[tokio::test]
async fn locks_of_two_databases_close_no_cycle() {
    #[advisory_lock(key = "crossed:<from>", name = "crossed")]
    async fn hold_and_wait(
        conn: &mut AsyncPgConnection,
        other: &mut AsyncPgConnection,
        from: i64,
        to: i64,
    ) -> Result<(), Error> {
        execute(conn, "SELECT 1").await?;
        let held = xact::begin(other, to).await?;
        held.finish(Ok(())).await
    }
    let (db, elsewhere) = (database().await, database().await);
    let (mut one, mut two) = (db.connect().await, elsewhere.connect().await);
    let [mut holder, mut far_holder] = [db.connect().await, elsewhere.connect().await];
    // Each waits for a holder on neither side, while the other side holds a lock of the same number
    // elsewhere.
    let key = |id: i64| advisory_pattern::Derivation::Sha256.key(&format!("crossed:{id}"));
    let held = xact::begin(&mut holder, key(22)).await.unwrap();
    let far_held = xact::begin(&mut far_holder, key(21)).await.unwrap();
    let (mut beside, mut far_beside) = (db.connect().await, elsewhere.connect().await);
    let near = hold_and_wait(&mut one, &mut beside, 21, key(22));
    let far = hold_and_wait(&mut two, &mut far_beside, 22, key(21));
    let release = async {
        db.until_waiting(key(22)).await;
        elsewhere.until_waiting(key(21)).await;
        held.finish(Ok::<_, Error>(())).await.unwrap();
        far_held.finish(Ok::<_, Error>(())).await.unwrap();
    };
    let (near, far, ()) = tokio::join!(near, far, release);
    near.unwrap();
    far.unwrap();
}

/// The server detects it, and ends it as in a release build.
#[tokio::test]
async fn a_cycle_that_the_server_sees_is_left_to_it() {
    #[advisory_lock(key = "crossed:<from>", name = "crossed")]
    async fn outer(
        conn: &mut AsyncPgConnection,
        from: i64,
        to: i64,
        meet: &Barrier,
    ) -> Result<(), Error> {
        meet.wait().await;
        inner(conn, to).await
    }
    #[advisory_lock(key = "crossed:<to>", name = "crossed")]
    async fn inner(conn: &mut AsyncPgConnection, to: i64) -> Result<(), Error> {
        execute(conn, "SELECT 1")
            .await
            .map(drop)
            .map_err(Error::Database)
    }
    let db = database().await;
    let (mut one, mut two) = (db.connect().await, db.connect().await);
    let meet = Barrier::new(2);
    let ends = both(outer(&mut one, 1, 2, &meet), outer(&mut two, 2, 1, &meet)).await;
    assert!(
        ends.iter()
            .any(|end| matches!(end, Err(Error::Deadlock { .. }))),
        "{ends:?}"
    );
    db.until_quiet().await;
}
