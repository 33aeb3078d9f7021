//! The permits of a lock: their keys, how they are assigned, and how they are released,
//! also when the query for one cannot be prepared.

use advisory_runtime::inventory::{self, Permits, Site};
use advisory_runtime::monitor::{self, Certainty, Names};
use advisory_runtime::{
    Error, Isolation, Key, LockKey, Request, Wait, advisory_lock, session, xact,
};
use advisory_tests::bookings::{database, execute, finish, run};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::lock_names::site;
use advisory_tests::permits::{PERMITS, held};
use advisory_tests::polls::until_missed;
use advisory_tests::{Database, Proxy, assert_error, blocking, pid_of};
use diesel::Connection as _;
use diesel::pg::PgConnection;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(2);

#[tokio::test]
async fn each_permit_is_a_key_of_its_own_and_is_released_as_itself() {
    let db = Database::create().await;
    let request = Request::new(42).permits(3).wait(Wait::Never);
    let mut conns = [db.connect().await, db.connect().await, db.connect().await];
    let mut other = db.connect().await;
    for scope in ["xact", "session", "strict"] {
        let request = match scope {
            "strict" => request.clone().isolation(Isolation::RepeatableRead),
            _ => request.clone(),
        };
        let mut guards = Vec::new();
        for conn in &mut conns {
            let guard = match scope {
                "session" => session::acquire(conn, request.clone()).await,
                _ => xact::begin(conn, request.clone()).await,
            };
            let guard = guard.unwrap();
            assert_eq!(guard.info().key(), Key::BigInt(42), "{scope}");
            guards.push(guard);
        }
        assert_eq!(held(&db).await, PERMITS, "{scope}");
        // The first of them is the key itself.
        for request in [request, Request::new(42).wait(Wait::Never)] {
            let refused = session::acquire(&mut other, request.clone()).await;
            assert_error!(refused.map(drop), NotAvailable);
            assert_error!(xact::begin(&mut other, request).await, NotAvailable);
        }
        for left in (0..3).rev() {
            finish(guards.pop().unwrap()).await;
            assert_eq!(held(&db).await.len(), left, "{scope}");
        }
    }
    db.until_quiet().await;
}

#[tokio::test]
async fn a_call_that_polls_gets_whichever_permit_comes_free() {
    let db = Database::create().await;
    for released in PERMITS {
        let (mut holder, mut conn) = (db.connect().await, db.connect().await);
        for key in PERMITS {
            run(&mut holder, &format!("SELECT pg_advisory_lock({key})")).await;
        }
        let pid = pid_of(&mut conn).await;
        let call = spawn(async move {
            let guard = xact::begin(&mut conn, Request::new(42).permits(3).poll(SHORT)).await?;
            guard.finish(Ok::<_, Error>(())).await
        });
        until_missed(&db, pid).await;
        let release = format!("SELECT pg_advisory_unlock({released})");
        run(&mut holder, &release).await;
        call.await.unwrap().unwrap();
    }
    db.until_quiet().await;
}

/// Calls do not all start at the first permit, whose holder would refuse all others.
#[tokio::test]
async fn a_try_begins_at_a_random_permit() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let mut keys = HashSet::new();
    for _ in 0..100 {
        let guard = xact::begin(&mut conn, Request::new(42).permits(3)).await;
        keys.extend(held(&db).await);
        finish(guard.unwrap()).await;
    }
    assert_eq!(keys.len(), 3, "{keys:?}");
}

/// A half-upgraded fleet.
#[tokio::test]
async fn programs_with_different_permit_counts_share_the_common_ones() {
    let db = Database::create().await;
    for (first, then, more) in [(3, 5, 2), (5, 3, 0), (3, 1, 0), (1, 3, 2), (5, 5, 0)] {
        let mut conns = Vec::new();
        for _ in 0..10 {
            conns.push(db.connect().await);
        }
        let mut guards = Vec::new();
        for (at, conn) in conns.iter_mut().enumerate() {
            let permits = if at < 5 { first } else { then };
            let request = Request::new(42).permits(permits).wait(Wait::Never);
            guards.extend(session::acquire(conn, request).await.ok());
        }
        let most = usize::try_from(first + more).unwrap();
        assert_eq!(guards.len(), most, "{first}, then {then}");
    }
}

#[derive(LockKey)]
#[lock_key("permit-job:<kind>")]
struct JobLock {
    kind: i64,
}

#[tokio::test]
async fn a_permit_is_not_a_witness_and_is_for_one_key() {
    let db = database().await;
    let mut conn = db.connect().await;
    let job = JobLock { kind: 7 };
    let two = Request::new(&job).permits(2);
    let mut guard = xact::begin(&mut conn, two).await.unwrap();
    assert_error!(guard.holding(&job), NotHeld);
    assert_error!(guard.holding_shared(&job), NotHeld);
    finish(guard).await;
    let several = Request::all([1, 2]).permits(2);
    let error = xact::begin(&mut conn, several).await.unwrap_err();
    assert_error!(error, TooManyKeys { keys, max, .. } if [*keys, *max] == [2, 1]);
    assert!(!error.to_string().contains("max_keys"), "{error}");
    // One permit is an ordinary lock.
    let one = Request::new(&job).permits(1);
    finish(xact::begin(&mut conn, one).await.unwrap()).await;
    db.until_quiet().await;
}

/// The number of concurrent exports comes from the settings.
struct Exports {
    limit: i64,
}

impl Exports {
    #[advisory_lock(
        key = "permits-of-an-expression",
        permits = self.limit,
        wait = "never",
        on_held = Ok(0)
    )]
    async fn export(
        &self,
        conn: &mut AsyncPgConnection,
        others: &mut [AsyncPgConnection],
    ) -> Result<u32, Error> {
        _ = conn;
        match others.split_first_mut() {
            Some((next, others)) => Ok(1 + Box::pin(self.export(next, others)).await?),
            None => Ok(1),
        }
    }
}

#[advisory_lock(key = "permits-of-a-constant", permits = LIMIT, wait = "never")]
fn export_blocking(conn: &mut PgConnection) -> Result<(), Error> {
    _ = conn;
    Ok(())
}

const LIMIT: usize = 5_000;

#[tokio::test]
async fn an_expression_says_how_many_may_hold_it() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    for (limit, expected) in [(1, 1), (2, 2), (1_000, 3)] {
        let mut others = [db.connect().await, db.connect().await];
        let exporting = Exports { limit };
        let exporting = exporting.export(&mut conn, &mut others).await;
        assert_eq!(exporting.unwrap(), expected, "{limit}");
        db.until_no_locks().await;
    }
    for limit in [0, -1, 1_001, i64::MIN] {
        let exporting = Exports { limit };
        let error = exporting.export(&mut conn, &mut []).await.unwrap_err();
        let refused = i128::from(limit);
        assert_error!(error, InvalidPermits { permits, .. } if *permits == refused);
        for number in [limit, 1_000] {
            assert!(error.to_string().contains(&number.to_string()), "{error}");
        }
    }
    let url = db.url().to_owned();
    let blocking = move || export_blocking(&mut PgConnection::establish(&url).unwrap());
    let error = spawn_blocking(blocking).await.unwrap();
    assert_error!(error, InvalidPermits { permits: 5_000, .. });
    // A later call of the request's method replaces an earlier one.
    for refused in [0_u128, u128::MAX] {
        let request = Request::new(42).permits(refused);
        let refused = session::acquire(&mut conn, request.clone()).await;
        assert_error!(refused.map(drop), InvalidPermits);
        let taken = session::acquire(&mut conn, request.permits(2)).await;
        finish(taken.unwrap()).await;
    }
    let sites = inventory::sites().unwrap();
    for (function, shown) in [("export", "self.limit"), ("export_blocking", "LIMIT")] {
        let mut sites = sites.iter();
        let site = sites.find(|site| site.function == function).unwrap();
        assert_eq!(site.permits.as_ref().unwrap().to_string(), shown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_or_a_bound_releases_the_permit_that_was_held() {
    #[advisory_lock(
        key = 42,
        permits = 3,
        name = "three",
        scope = "session",
        wait = "never"
    )]
    fn panics(conn: &mut PgConnection) -> Result<(), Error> {
        assert!(blocking::held_by(conn)? == 0, "the body's own panic");
        Ok(())
    }
    #[advisory_lock(
        key = 42,
        permits = 3,
        name = "three",
        scope = "session",
        wait = "never",
        max_hold = "10ms"
    )]
    async fn hangs(conn: &mut AsyncPgConnection) -> Result<(), Error> {
        assert_eq!(execute(conn, "SELECT 1").await?, 1);
        std::future::pending().await
    }
    let db = Database::create().await;
    let (mut conn, mut other) = (db.establish(), db.connect().await);
    // Whichever permit each of them gets.
    for _ in 0..10 {
        let call = AssertUnwindSafe(|| panics(&mut conn));
        catch_unwind(call).unwrap_err();
        assert_eq!(blocking::held_by(&mut conn).unwrap(), 0);
        assert_error!(hangs(&mut other).await, HoldExceeded);
        db.until_no_locks().await;
        // Closed if the server had not answered within a tenth of a second.
        if execute(&mut other, "SELECT 1").await.is_err() {
            other = db.connect().await;
        }
    }
}

#[tokio::test]
async fn each_permit_has_the_name_of_its_lock_in_the_live_view() {
    let db = Database::create().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    for key in PERMITS {
        let lock = format!("SELECT pg_advisory_lock({key})");
        run(&mut holder, &lock).await;
    }
    for permits in [Permits::Number(3), Permits::Expression("self.limit".into())] {
        let site = Site {
            permits: Some(permits),
            ..site("export", "42", "number 42", "session")
        };
        let names = Names::of([site]).unwrap();
        let seen = monitor::locks(&mut conn, &names).await.unwrap();
        assert_eq!(seen.locks.len(), 3);
        for lock in &seen.locks {
            let [name] = &*lock.names else {
                panic!("{lock:?}");
            };
            assert_eq!(name.certainty, Certainty::Certain, "{lock:?}");
            assert_eq!(name.sites[0].function, "export", "{lock:?}");
        }
    }
}

/// The numbers that the guide tells other programs to compute.
#[tokio::test]
async fn the_servers_own_functions_give_the_same_numbers() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    for (permit, number) in (1..).zip(PERMITS).skip(1) {
        let sql = format!(
            "('x' || left(encode(sha256('\\xff'::bytea || convert_to('{permit}:42', 'UTF8')), 'hex'), 16))::bit(64)::bigint"
        );
        let page = include_str!("../../../advisory-runtime/docs/keys.md");
        assert!(permit != 2 || page.contains(&sql), "{sql}");
        let query = diesel::select(diesel::dsl::sql::<diesel::sql_types::BigInt>(&sql));
        assert_eq!(query.get_result::<i64>(&mut conn).await.unwrap(), number);
    }
}

/// Another program's statement can have its name.
#[tokio::test]
async fn a_permit_is_taken_by_text_if_statements_cannot_be_prepared() {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let request = Request::new(42).permits(3).wait(Wait::Never);
    for (others, key) in PERMITS.into_iter().map(Some).chain([None]).enumerate() {
        by_text(&mut conn, &proxy, async |conn| {
            let begun = xact::begin(conn, request.clone()).await;
            if others < PERMITS.len() {
                assert_eq!(held(&db).await.len(), others + 1);
                finish(begun.unwrap()).await;
            } else {
                assert_error!(begun, NotAvailable);
            }
        })
        .await;
        if let Some(key) = key {
            db.run(&format!("SELECT pg_advisory_lock({key})")).await;
        }
    }
}

/// The server does not say which permit it is, and other sessions hold the other ones.
#[tokio::test]
async fn a_check_finds_only_the_permit_that_was_taken_by_text() {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let request = Request::new(42).permits(3).wait(Wait::Never);
    for other in PERMITS {
        by_text(&mut conn, &proxy, async |conn| {
            let mut guard = xact::begin(conn, request.clone()).await.unwrap();
            let acquired = guard.info();
            acquired.check(guard.conn()).await.unwrap();
            guard.conn().batch_execute("ROLLBACK").await.unwrap();
            assert_error!(acquired.check(guard.conn()).await, LockLost);
            assert_error!(guard.finish(Ok::<_, Error>(())).await, TransactionEnded);
        })
        .await;
        db.run(&format!("SELECT pg_advisory_lock({other})")).await;
    }
}

#[tokio::test]
async fn a_miss_by_text_under_a_savepoint_is_a_miss() {
    let db = Database::create().await;
    db.run("SELECT pg_advisory_lock(7)").await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let mut outer = xact::begin(&mut conn, 8).await.unwrap();
    by_text(outer.conn(), &proxy, async |conn| {
        let tried = Request::new(7).wait(Wait::Never);
        assert_error!(xact::begin(conn, tried).await, NotAvailable);
    })
    .await;
    finish(outer).await;
}

/// Repeats a call until it has sent its query as text: other tests of this process can use up the
/// names meanwhile.
async fn by_text(
    conn: &mut AsyncPgConnection,
    proxy: &Proxy,
    call: impl AsyncFn(&mut AsyncPgConnection),
) {
    let is_text = |query: &String| query.contains("EXISTS(SELECT 1 ");
    loop {
        take_names(conn).await;
        proxy.reset();
        call(conn).await;
        if proxy.queries().iter().any(is_text) {
            return;
        }
    }
}

/// Uses up the names that this process gives to its next statements, on all of its connections.
async fn take_names(conn: &mut AsyncPgConnection) {
    conn.batch_execute("DEALLOCATE ALL").await.unwrap();
    let name = diesel::dsl::sql::<diesel::sql_types::Text>(
        "SELECT name FROM pg_prepared_statements ORDER BY prepare_time DESC LIMIT 1",
    );
    let name: String = name.get_result(conn).await.unwrap();
    let last: usize = name.trim_start_matches('s').parse().unwrap();
    let names = last + 1..last + 500;
    let taken: Vec<String> = names
        .map(|next| format!("PREPARE s{next} AS SELECT 1"))
        .collect();
    conn.batch_execute(&taken.join(";")).await.unwrap();
}
