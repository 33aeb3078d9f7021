//! `max_hold` of a nested call whose body was inside its own transaction: the outer transaction and
//! its connection stay usable, wherever the body was dropped.

use advisory_runtime::{Connection, Error, Isolation, Pool, Request, advisory_lock, session, xact};
use advisory_tests::bookings::{committed, database, in_transaction, insert};
use advisory_tests::settings::settings;
use advisory_tests::{Database, assert_error, assert_matches, pid_of};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{
    AnsiTransactionManager, AsyncPgConnection, SimpleAsyncConnection as _, TransactionManager,
};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BRIEF: Duration = Duration::from_millis(15);

/// A call that takes longer may have been closed, since its rollback was not answered in time: the
/// machine is busy, and the round begins again.
const IN_TIME: Duration = Duration::from_millis(90);

#[derive(Clone, Copy, Debug)]
enum Body {
    /// In the message that begins or ends a transaction: it awaits nothing else.
    BeginsAndEnds,
    /// The same, with a transaction of its own around that.
    BeginsAndEndsInside,
    /// Between two statements of its own transaction.
    Idles,
    IdlesUnderLock,
    IdlesUnderLocks,
}

const BODIES: [Body; 5] = [
    Body::BeginsAndEnds,
    Body::BeginsAndEndsInside,
    Body::Idles,
    Body::IdlesUnderLock,
    Body::IdlesUnderLocks,
];

#[advisory_lock(key = "room:<room>", name = "room")]
async fn inner(conn: &mut AsyncPgConnection, room: i64, depth: u8) -> QueryResult<()> {
    insert(conn, room, "of the inner body").await?;
    match depth {
        0 => pending().await,
        depth => Box::pin(inner(conn, room, depth - 1)).await,
    }
}

#[advisory_lock(key = "room:<room>", name = "room", max_hold = BRIEF)]
async fn bounded(conn: &mut AsyncPgConnection, room: i64, does: Body) -> QueryResult<()> {
    async fn begin_and_end(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        loop {
            AnsiTransactionManager::begin_transaction(conn).await?;
            AnsiTransactionManager::commit_transaction(conn).await?;
        }
    }
    insert(conn, room, "of the body").await?;
    match does {
        Body::BeginsAndEnds => begin_and_end(conn).await,
        Body::BeginsAndEndsInside => in_transaction(conn, begin_and_end).await,
        Body::IdlesUnderLock => inner(conn, room, 0).await,
        Body::IdlesUnderLocks => inner(conn, room, 1).await,
        Body::Idles => {
            in_transaction(conn, async |conn| {
                insert(conn, room, "of the body's transaction").await?;
                pending().await
            })
            .await
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Around {
    Transaction,
    TransactionInTransaction,
    LockedCall,
    TestTransaction,
}

const AROUND: [Around; 4] = [
    Around::Transaction,
    Around::TransactionInTransaction,
    Around::LockedCall,
    Around::TestTransaction,
];

/// The caller writes before and after the bounded call; it ends its transactions through Diesel.
async fn call(conn: &mut AsyncPgConnection, does: Body, what: &str) -> QueryResult<()> {
    insert(conn, 1, "before").await?;
    let started = Instant::now();
    let end = bounded(conn, 7, does).await;
    if started.elapsed() > IN_TIME {
        return Err(DieselError::RollbackTransaction);
    }
    assert_error!(end, HoldExceeded, "{what}");
    // Diesel's own begin and end, at the same depth as the body's.
    in_transaction(conn, async |conn| insert(conn, 2, "behind").await).await?;
    let undone: QueryResult<()> = in_transaction(conn, async |conn| {
        insert(conn, 3, "rolled back").await?;
        Err(DieselError::RollbackTransaction)
    })
    .await;
    assert_matches!(undone, Err(DieselError::RollbackTransaction), "{what}");
    Ok(())
}

async fn round(conn: &mut AsyncPgConnection, around: Around, does: Body, what: &str) -> bool {
    let end = match around {
        Around::Transaction => {
            in_transaction(conn, async |conn| call(conn, does, what).await).await
        }
        Around::TransactionInTransaction => {
            in_transaction(conn, async |conn| {
                in_transaction(conn, async |conn| call(conn, does, what).await).await
            })
            .await
        }
        Around::LockedCall => {
            let mut held = xact::begin(conn, 99).await.unwrap();
            let end = call(held.conn(), does, what).await;
            held.finish(end).await
        }
        Around::TestTransaction => {
            use diesel_async::AsyncConnection;
            conn.begin_test_transaction().await.unwrap();
            match call(conn, does, what).await {
                Ok(()) => AnsiTransactionManager::commit_transaction(conn).await,
                late => {
                    drop(AnsiTransactionManager::rollback_transaction(conn).await);
                    late
                }
            }
        }
    };
    match end {
        Ok(()) => true,
        Err(DieselError::RollbackTransaction) => false,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

async fn assert_kept(db: &Database, what: &str) {
    let mut kept = Vec::new();
    for room in [1, 2, 3, 7] {
        kept.push(committed(db, room).await);
    }
    assert_eq!(kept, [1, 1, 0, 0], "{what}");
    assert_eq!(db.locks().await, [], "{what}");
    db.run("DELETE FROM booking").await;
}

/// The pool's one connection is the same before and after each body.
async fn keeps_count<P: Pool>(db: &Database, pool: &P, around: Around, does: Body, what: &str) {
    let pid = loop {
        let mut conn = pool.connection().await.unwrap();
        if round(conn.pg(), around, does, what).await {
            break pid_of(conn.pg()).await;
        }
        drop(conn);
        db.until_no_locks().await;
    };
    assert_kept(db, what).await;
    let next = pid_of(pool.connection().await.unwrap().pg()).await;
    assert_eq!(next, pid, "{what}: the pool keeps the connection");
}

#[tokio::test]
async fn a_body_dropped_in_a_transaction_keeps_diesels_count_right() {
    let db = database().await;
    let (bb8, deadpool) = (db.bb8(1).await, db.deadpool(1));
    for number in 0..3 {
        for around in AROUND {
            for does in BODIES {
                let what = format!("{around:?}, {does:?}, round {number}");
                keeps_count(&db, &bb8, around, does, &what).await;
                keeps_count(&db, &deadpool, around, does, &what).await;
            }
        }
    }
    db.until_quiet().await;
}

#[derive(Clone, Copy, Debug)]
enum Inner {
    Session,
    BoundedSession,
    Xact,
    Strict,
}

const AROUND_LIMIT: Duration = Duration::from_millis(200);

#[advisory_lock(key = "hold-around:<room>", scope = "session", max_hold = AROUND_LIMIT)]
async fn bounded_session(
    conn: &mut AsyncPgConnection,
    room: i64,
    inner: Inner,
    is_held: &AtomicBool,
) -> Result<(), Error> {
    let request = Request::all([room, room + 1]);
    let _held = match inner {
        Inner::Session => session::acquire(conn, request).await?,
        Inner::BoundedSession => {
            let request = request.max_hold(Duration::from_secs(3600));
            session::acquire(conn, request).await?
        }
        Inner::Xact => xact::begin(conn, request).await?,
        Inner::Strict => xact::begin(conn, request.isolation(Isolation::Serializable)).await?,
    };
    is_held.store(true, Ordering::Relaxed);
    pending().await
}

/// The limit ends the inner call too: its locks are released, and the session's settings are as
/// before.
#[tokio::test]
async fn a_call_inside_a_session_level_one_ends_with_its_limit() {
    let db = database().await;
    for inner in [
        Inner::Session,
        Inner::BoundedSession,
        Inner::Xact,
        Inner::Strict,
    ] {
        // On a busy machine the limit can come before the inner call holds its locks, and the
        // release can be answered too late: both close the connection.
        let (mut conn, before) = loop {
            let (mut conn, is_held) = (db.connect().await, AtomicBool::new(false));
            let before = settings(&mut conn).await;
            let started = Instant::now();
            let error = bounded_session(&mut conn, 7, inner, &is_held).await;
            assert_error!(error, HoldExceeded, "{inner:?}");
            if is_held.into_inner() && started.elapsed() < AROUND_LIMIT + IN_TIME {
                break (conn, before);
            }
        };
        assert_eq!(db.locks().await, [], "{inner:?}");
        assert_eq!(settings(&mut conn).await, before, "{inner:?}");
        insert(&mut conn, 7, "after").await.unwrap();
    }
    assert_eq!(committed(&db, 7).await, 4);
    db.until_quiet().await;
}

#[advisory_lock(key = "room:<room>", name = "room", max_hold = BRIEF)]
async fn sleeps(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    conn.batch_execute("SELECT pg_sleep(60)").await
}

/// As the guide's page on nesting says.
#[tokio::test]
async fn a_transaction_keeps_the_error_that_a_transaction_builder_loses() {
    let db = database().await;
    let mut conn = db.connect().await;
    let kept = in_transaction(&mut conn, async |conn| sleeps(conn, 7).await).await;
    assert_error!(kept, HoldExceeded);
    let mut conn = db.connect().await;
    let mut builder = conn.build_transaction();
    let lost = builder.run(async |conn| sleeps(conn, 7).await).await;
    let lost = lost.unwrap_err();
    assert!(Error::find(&lost).is_none(), "{lost:?}");
    db.until_no_locks().await;
}
