//! `max_hold` of a nested call whose body was inside its own transaction: the outer transaction and its connection stay
//! usable, wherever the body was dropped.

use crate::bookings::{committed, database, in_transaction, insert};
use advisory_runtime::{Connection, Error, advisory_lock, xact};
use advisory_tests::{Database, pid_of};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, TransactionManager};
use std::future::pending;
use std::time::Duration;

const BRIEF: Duration = Duration::from_millis(15);

/// The state of the body when it is dropped.
#[derive(Clone, Copy, Debug)]
enum Body {
    /// In the message that begins or ends a transaction: it awaits nothing else.
    BeginsAndEnds,
    /// The same, with a transaction of its own around that.
    BeginsAndEndsInside,
    /// Between two statements of its own transaction.
    Idles,
}

const BODIES: [Body; 3] = [Body::BeginsAndEnds, Body::BeginsAndEndsInside, Body::Idles];

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
        Body::Idles => {
            in_transaction(conn, async |conn| {
                insert(conn, room, "of the body's transaction").await?;
                pending().await
            })
            .await
        }
    }
}

fn assert_exceeded(end: QueryResult<()>, what: &str) {
    let error = end.unwrap_err();
    let found = Error::find(&error);
    assert!(
        matches!(found.as_deref(), Some(Error::HoldExceeded { .. })),
        "{what}: {error:?}"
    );
}

/// What surrounds the nested call.
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
    assert_exceeded(bounded(conn, 7, does).await, what);
    // Diesel's own begin and end, at the same depth as the body's.
    in_transaction(conn, async |conn| insert(conn, 2, "behind").await).await?;
    let undone: QueryResult<()> = in_transaction(conn, async |conn| {
        insert(conn, 3, "rolled back").await?;
        Err(DieselError::RollbackTransaction)
    })
    .await;
    assert!(
        matches!(undone, Err(DieselError::RollbackTransaction)),
        "{what}"
    );
    Ok(())
}

async fn round(conn: &mut AsyncPgConnection, around: Around, does: Body, what: &str) {
    match around {
        Around::Transaction => {
            in_transaction(conn, async |conn| call(conn, does, what).await)
                .await
                .unwrap();
        }
        Around::TransactionInTransaction => {
            in_transaction(conn, async |conn| {
                in_transaction(conn, async |conn| call(conn, does, what).await).await
            })
            .await
            .unwrap();
        }
        Around::LockedCall => {
            let mut held = xact::begin(conn, 99).await.unwrap();
            call(held.conn(), does, what).await.unwrap();
            held.finish(Ok::<_, Error>(())).await.unwrap();
        }
        Around::TestTransaction => {
            use diesel_async::AsyncConnection;
            conn.begin_test_transaction().await.unwrap();
            call(conn, does, what).await.unwrap();
            AnsiTransactionManager::commit_transaction(conn)
                .await
                .unwrap();
        }
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

#[tokio::test]
async fn a_body_dropped_in_a_transaction_keeps_diesels_count_right() {
    let db = database().await;
    let (bb8, deadpool) = (db.bb8(1).await, db.deadpool(1));
    for number in 0..3 {
        for around in AROUND {
            for does in BODIES {
                let what = format!("{around:?}, {does:?}, round {number}");
                for is_bb8 in [true, false] {
                    let pid = if is_bb8 {
                        let mut conn = bb8.get().await.unwrap();
                        round(conn.pg(), around, does, &what).await;
                        pid_of(&mut conn).await
                    } else {
                        let mut conn = deadpool.get().await.unwrap();
                        round(conn.pg(), around, does, &what).await;
                        pid_of(&mut conn).await
                    };
                    assert_kept(&db, &what).await;
                    let next = if is_bb8 {
                        pid_of(&mut bb8.get().await.unwrap()).await
                    } else {
                        pid_of(&mut deadpool.get().await.unwrap()).await
                    };
                    assert_eq!(next, pid, "{what}: the pool keeps the connection");
                }
            }
        }
    }
    db.until_quiet().await;
}
