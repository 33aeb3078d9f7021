//! The view of a server's operators on many calls: a constant number of entries in
//! `pg_stat_statements`, and nothing in the log if a try finds its lock held.

use advisory_runtime::{Error, Isolation, Key, Request, Wait, blocking, session, xact};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::pauses::pause;
use advisory_tests::{Database, LockedKey, OwnServer, assert_error, left_out, owns_server};
use diesel::{Connection as _, PgConnection};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Duration;

const AN_HOUR: Duration = Duration::from_secs(3600);

macro_rules! kinds {
    ($($kind:ident)*) => {
        #[derive(Clone, Copy, Debug)]
        enum Kind {
            $($kind,)*
        }

        const KINDS: [Kind; 20] = [$(Kind::$kind),*];
    };
}

kinds! {
    Xact Shared Pair Several Eight Wait SeveralWait MaxHold Nested Serializable
    Try TrySeveral TryStrict
    Session SessionShared SessionSeveral SessionWait SessionMaxHold SessionTry SessionTrySeveral
}

/// For `key` and its neighbours towards zero.
fn near(key: i64, count: i64) -> Request {
    let step = if key < 0 { 1 } else { -1 };
    Request::all((0..count).map(|number| key + step * number))
}

impl Kind {
    fn request(self, key: i64) -> Request {
        let one = Request::new(key);
        match self {
            Self::Xact | Self::Nested | Self::Session => one,
            Self::Shared | Self::SessionShared => one.shared(),
            Self::Pair => {
                let half = i32::try_from(key.clamp(i32::MIN.into(), i32::MAX.into()));
                Request::new((half.unwrap(), 7))
            }
            Self::Several | Self::SessionSeveral => near(key, 3),
            Self::Eight => near(key, 8),
            Self::Wait | Self::SessionWait => one.wait(AN_HOUR),
            Self::SeveralWait => near(key, 3).wait(AN_HOUR),
            Self::MaxHold | Self::SessionMaxHold => one.max_hold(AN_HOUR),
            Self::Serializable => one.isolation(Isolation::Serializable),
            Self::Try | Self::SessionTry => one.wait(Wait::Never),
            Self::TrySeveral | Self::SessionTrySeveral => near(key, 2).wait(Wait::Never),
            Self::TryStrict => one.wait(Wait::Never).isolation(Isolation::Serializable),
        }
    }

    fn is_session(self) -> bool {
        format!("{self:?}").starts_with("Session")
    }

    fn is_try(self) -> bool {
        format!("{self:?}").contains("Try")
    }

    async fn call(self, conn: &mut AsyncPgConnection, key: i64) -> Result<Vec<Key>, Error> {
        let request = self.request(key);
        if let Self::Nested = self {
            let mut outer = xact::begin(conn, (1, 1)).await?;
            let inner = xact::begin(outer.conn(), request).await?;
            let keys = inner.info().keys().to_vec();
            inner.finish(Ok::<_, Error>(())).await?;
            return outer.finish(Ok(keys)).await;
        }
        let held = if self.is_session() {
            session::acquire(conn, request).await?
        } else {
            xact::begin(conn, request).await?
        };
        let keys = held.info().keys().to_vec();
        held.finish(Ok(keys)).await
    }

    /// The same on Diesel's blocking connection.
    fn call_blocking(self, conn: &mut PgConnection, key: i64) -> Result<(), Error> {
        let request = self.request(key);
        if let Self::Nested = self {
            let mut outer = blocking::xact::begin(conn, (1, 1))?;
            let inner = blocking::xact::begin(outer.conn(), request)?;
            inner.finish(Ok::<_, Error>(()))?;
            return outer.finish(Ok(()));
        }
        let held = if self.is_session() {
            blocking::session::acquire(conn, request)?
        } else {
            blocking::xact::begin(conn, request)?
        };
        held.finish(Ok(()))
    }
}

async fn texts(conn: &mut AsyncPgConnection, sql: &str) -> Vec<String> {
    let texts = diesel::dsl::sql::<diesel::sql_types::Text>(sql);
    texts.load(conn).await.unwrap()
}

/// The statements that the server counts, without the query for them.
async fn statements(observer: &mut AsyncPgConnection) -> Vec<String> {
    let all = "SELECT query FROM pg_stat_statements WHERE strpos(query, 'pg_stat_statements') = 0 ORDER BY query";
    texts(observer, all).await
}

/// A server with the extension, if it is installed.
async fn server_that_counts() -> Option<OwnServer> {
    if !owns_server() {
        left_out("pg_stat_statements", "the server is somebody's own");
        return None;
    }
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    let available =
        "SELECT name::text FROM pg_available_extensions WHERE name = 'pg_stat_statements'";
    if texts(&mut conn, available).await.is_empty() {
        left_out(
            "pg_stat_statements",
            "the server does not have the extension",
        );
        return None;
    }
    let preload = "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'";
    conn.batch_execute(preload).await.unwrap();
    drop(conn);
    server.stop("fast").await;
    server.start_again().await;
    Some(server)
}

/// Of each kind, each with its own keys.
const CALLS: i64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_calls_leave_a_constant_number_of_statements() {
    let Some(server) = server_that_counts().await else {
        return;
    };
    let mut observer = AsyncPgConnection::establish(server.url()).await.unwrap();
    let create = "CREATE EXTENSION pg_stat_statements";
    observer.batch_execute(create).await.unwrap();
    let key = |number: i64| (number - CALLS / 2).wrapping_mul(0x1_2345_6789);
    // The server counts a number that fits into an `int4` separately from a larger one.
    let first_keys = [1_234, 5, -5, key(0), key(CALLS)];
    let url = server.url().to_owned();
    let mut blocking = spawn_blocking(move || PgConnection::establish(&url).unwrap())
        .await
        .unwrap();
    for kind in KINDS {
        let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
        for key in first_keys {
            kind.call(&mut conn, key).await.unwrap();
            kind.call_blocking(&mut blocking, key).unwrap();
        }
        let before = statements(&mut observer).await;
        for call in 0..CALLS {
            kind.call(&mut conn, key(call)).await.unwrap();
            if call % 4 == 0 {
                kind.call_blocking(&mut blocking, key(call)).unwrap();
            }
        }
        let after = statements(&mut observer).await;
        assert_eq!(after, before, "{kind:?}");
    }
    let mut holder = AsyncPgConnection::establish(server.url()).await.unwrap();
    let held = session::acquire(&mut holder, Request::all((0..CALLS).map(key)))
        .await
        .unwrap();
    for kind in KINDS.into_iter().filter(|kind| kind.is_try()) {
        let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
        drop(kind.call(&mut conn, key(0)).await.unwrap_err());
        drop(kind.call_blocking(&mut blocking, key(0)).unwrap_err());
        let before = statements(&mut observer).await;
        for call in 0..CALLS {
            assert_error!(kind.call(&mut conn, key(call)).await, NotAvailable);
            if call % 4 == 0 {
                assert_error!(kind.call_blocking(&mut blocking, key(call)), NotAvailable);
            }
        }
        let after = statements(&mut observer).await;
        assert_eq!(after, before, "a miss of {kind:?}");
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_misses_writes_nothing_into_the_servers_log() {
    if !owns_server() {
        return left_out("the server's log", "the server is somebody's own");
    }
    let server = OwnServer::start().await;
    let mut holder = AsyncPgConnection::establish(server.url()).await.unwrap();
    for set in [
        "ALTER SYSTEM SET log_min_messages = warning",
        "ALTER SYSTEM SET log_min_error_statement = error",
        "SELECT pg_reload_conf()",
    ] {
        holder.batch_execute(set).await.unwrap();
    }
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    let url = server.url().to_owned();
    let mut blocking = spawn_blocking(move || PgConnection::establish(&url).unwrap())
        .await
        .unwrap();
    let held = session::acquire(&mut holder, 7).await.unwrap();
    let complaints = || {
        let log = server.log();
        let is_one = |line: &&str| {
            ["WARNING", "ERROR", "FATAL", "STATEMENT"]
                .iter()
                .any(|level| line.contains(level))
        };
        log.lines()
            .filter(is_one)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = complaints();
    for kind in KINDS.into_iter().filter(|kind| kind.is_try()) {
        for _ in 0..3 {
            assert_error!(kind.call(&mut conn, 7).await, NotAvailable);
            assert_error!(kind.call_blocking(&mut blocking, 7), NotAvailable);
        }
    }
    // Inside a transaction.
    let mut outer = xact::begin(&mut conn, 1).await.unwrap();
    let missed = xact::begin(outer.conn(), Request::new(7).wait(Wait::Never)).await;
    drop(missed.unwrap_err());
    outer.finish(Ok::<_, Error>(())).await.unwrap();
    // Later lines of the log come after all of that.
    conn.batch_execute("SELECT no_such_column")
        .await
        .unwrap_err();
    let mut after = complaints();
    while !after.iter().any(|line| line.contains("no_such_column")) {
        pause().await;
        after = complaints();
    }
    after.retain(|line| !line.contains("no_such_column"));
    assert_eq!(after, before);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lowest_and_the_highest_key_work_in_every_kind_of_call() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let mut blocking = db.establish();
    for key in [i64::MIN, i64::MAX] {
        for kind in KINDS {
            let taken = kind.call(&mut conn, key).await;
            let taken = taken.unwrap_or_else(|error| panic!("{kind:?} {key}: {error:?}"));
            let is_extreme = |taken: &Key| match *taken {
                Key::BigInt(taken) => taken == key,
                Key::IntInt(first, _) => first == if key < 0 { i32::MIN } else { i32::MAX },
            };
            assert!(taken.iter().any(is_extreme), "{kind:?}: {taken:?}");
            let ended = kind.call_blocking(&mut blocking, key);
            ended.unwrap_or_else(|error| panic!("{kind:?} {key}, blocking: {error:?}"));
            assert_eq!(db.locks().await, [], "{kind:?} {key}");
        }
    }
    for (key, locked) in [
        (Key::BigInt(i64::MIN), LockedKey::Bigint(i64::MIN)),
        (
            Key::IntInt(i32::MIN, i32::MIN),
            LockedKey::Pair(i32::MIN, i32::MIN),
        ),
        (
            Key::IntInt(i32::MAX, i32::MIN),
            LockedKey::Pair(i32::MAX, i32::MIN),
        ),
    ] {
        for wait in [Wait::Session, Wait::Never, Wait::For(AN_HOUR)] {
            let request = Request::new(key).wait(wait);
            let held = session::acquire(&mut conn, request.clone()).await.unwrap();
            let seen: Vec<_> = db.locks().await.iter().map(|lock| lock.key).collect();
            assert_eq!(seen, [locked], "{request:?}");
            held.finish(Ok::<_, Error>(())).await.unwrap();
        }
    }
    db.until_quiet().await;
}
