//! Shared mode, in either scope: readers together, a writer alone, and the queue is not overtaken.

use super::super::{Conn, LockGuard, acquire, begin, connect, end, spawn};
use advisory_runtime::{Error, Request, Wait};
use advisory_tests::bookings::database;
use advisory_tests::{assert_error, assert_matches};
use std::sync::{Arc, Mutex};
use tokio::sync::Barrier;

#[derive(Clone, Copy, Debug)]
enum Scope {
    Xact,
    Session,
}

const SCOPES: [Scope; 2] = [Scope::Xact, Scope::Session];

impl Scope {
    async fn take(self, conn: &mut Conn, request: Request) -> Result<LockGuard<'_>, Error> {
        match self {
            Self::Xact => begin(conn, request).await,
            Self::Session => acquire(conn, request).await,
        }
    }
}

fn reader() -> Request {
    Request::new(7).shared()
}

fn writer() -> Request {
    Request::new(7)
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_hold_it_together_and_a_writer_alone() {
    let db = database().await;
    let mut conns = [connect(&db).await, connect(&db).await, connect(&db).await];
    let [first, second, third] = &mut conns;
    // Both scopes are one lock.
    for (scope, other) in [
        (Scope::Xact, Scope::Xact),
        (Scope::Session, Scope::Session),
        (Scope::Xact, Scope::Session),
    ] {
        let one = scope.take(first, reader()).await.unwrap();
        let two = other
            .take(second, reader().wait(Wait::Never))
            .await
            .unwrap();
        assert!(
            db.locks()
                .await
                .iter()
                .all(|lock| lock.mode == "ShareLock" && lock.granted)
        );
        assert_error!(
            scope.take(third, writer().wait(Wait::Never)).await,
            NotAvailable
        );
        end(one, Ok::<_, Error>(())).await.unwrap();
        assert_error!(
            other.take(third, writer().wait(Wait::Never)).await,
            NotAvailable
        );
        end(two, Ok::<_, Error>(())).await.unwrap();
        let alone = scope.take(third, writer().wait(Wait::Never)).await.unwrap();
        for request in [reader(), writer()] {
            assert_error!(
                other.take(first, request.wait(Wait::Never)).await,
                NotAvailable
            );
        }
        end(alone, Ok::<_, Error>(())).await.unwrap();
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_writer_delays_later_readers() {
    let db = database().await;
    for scope in SCOPES {
        let (mut holder, mut late) = (connect(&db).await, connect(&db).await);
        let held = scope.take(&mut holder, reader()).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut queue = Vec::new();
        for (before, (name, request)) in [("writer", writer()), ("reader", reader())]
            .into_iter()
            .enumerate()
        {
            let (mut conn, order) = (connect(&db).await, Arc::clone(&order));
            queue.push(spawn(async move {
                let held = scope.take(&mut conn, request).await?;
                order.lock().unwrap().push(name);
                end(held, Ok::<_, Error>(())).await
            }));
            db.until_waiters(7, before + 1).await;
        }
        // Nor does a try overtake it.
        assert_error!(
            scope.take(&mut late, reader().wait(Wait::Never)).await,
            NotAvailable
        );
        end(held, Ok::<_, Error>(())).await.unwrap();
        for call in queue {
            call.await.unwrap().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["writer", "reader"], "{scope:?}");
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_alone_gets_the_exclusive_lock_above_its_shared_one() {
    let db = database().await;
    let mut conn = connect(&db).await;
    for scope in SCOPES {
        let mut shared = scope.take(&mut conn, reader()).await.unwrap();
        let alone = scope
            .take(shared.conn(), writer().wait(Wait::Never))
            .await
            .unwrap();
        assert_eq!(db.locks().await.len(), 2);
        end(alone, Ok::<_, Error>(())).await.unwrap();
        end(shared, Ok::<_, Error>(())).await.unwrap();
        assert_eq!(db.locks().await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_upgrades_from_shared_to_exclusive_deadlock() {
    let db = database().await;
    for scope in SCOPES {
        let readers = Arc::new(Barrier::new(2));
        let upgrades = [connect(&db).await, connect(&db).await].map(|mut conn| {
            let readers = Arc::clone(&readers);
            spawn(async move {
                let mut held = scope.take(&mut conn, reader()).await?;
                readers.wait().await;
                let upgraded = match scope.take(held.conn(), writer()).await {
                    Ok(held) => end(held, Ok::<_, Error>(())).await,
                    Err(error) => Err(error),
                };
                // The victim keeps its shared lock until here, and then lets the other continue.
                end(held, upgraded).await
            })
        });
        let mut ends = Vec::new();
        for upgrade in upgrades {
            ends.push(upgrade.await.unwrap());
        }
        ends.sort_by_key(Result::is_ok);
        assert_matches!(&*ends, [Err(Error::Deadlock { .. }), Ok(())], "{scope:?}");
        db.until_no_locks().await;
    }
    db.until_quiet().await;
}
