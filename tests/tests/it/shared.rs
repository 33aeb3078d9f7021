//! Shared mode, in either scope: readers together, a writer alone, and the queue is not overtaken.

use crate::bookings::{database, finish};
use advisory_runtime::{Error, Request, Wait, session, xact};
use diesel_async::AsyncPgConnection;
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug)]
enum Scope {
    Xact,
    Session,
}

const SCOPES: [Scope; 2] = [Scope::Xact, Scope::Session];

impl Scope {
    async fn take(
        self,
        conn: &mut AsyncPgConnection,
        request: Request,
    ) -> Result<advisory_runtime::LockGuard<'_, AsyncPgConnection>, Error> {
        match self {
            Self::Xact => xact::begin(conn, request).await,
            Self::Session => session::acquire(conn, request).await,
        }
    }
}

fn reader() -> Request {
    Request::new(7).shared()
}

fn writer() -> Request {
    Request::new(7)
}

#[tokio::test]
async fn readers_hold_it_together_and_a_writer_alone() {
    let db = database().await;
    let mut conns = [db.connect().await, db.connect().await, db.connect().await];
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
        let error = scope
            .take(third, writer().wait(Wait::Never))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        finish(one).await;
        let error = other
            .take(third, writer().wait(Wait::Never))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        finish(two).await;
        let alone = scope.take(third, writer().wait(Wait::Never)).await.unwrap();
        for request in [reader(), writer()] {
            let error = other
                .take(first, request.wait(Wait::Never))
                .await
                .unwrap_err();
            assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        }
        finish(alone).await;
    }
    db.until_quiet().await;
}

#[tokio::test]
async fn a_waiting_writer_delays_later_readers() {
    let db = database().await;
    for scope in SCOPES {
        let (mut holder, mut late) = (db.connect().await, db.connect().await);
        let held = scope.take(&mut holder, reader()).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut queue = Vec::new();
        for (before, (name, request)) in [("writer", writer()), ("reader", reader())]
            .into_iter()
            .enumerate()
        {
            let (mut conn, order) = (db.connect().await, Arc::clone(&order));
            queue.push(tokio::spawn(async move {
                let held = scope.take(&mut conn, request).await?;
                order.lock().unwrap().push(name);
                held.finish(Ok::<_, Error>(())).await
            }));
            db.until_waiters(7, before + 1).await;
        }
        // Nor does a try overtake it.
        let error = scope
            .take(&mut late, reader().wait(Wait::Never))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        finish(held).await;
        for call in queue {
            call.await.unwrap().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["writer", "reader"], "{scope:?}");
    }
    db.until_quiet().await;
}

#[tokio::test]
async fn a_session_alone_gets_the_exclusive_lock_above_its_shared_one() {
    let db = database().await;
    let mut conn = db.connect().await;
    for scope in SCOPES {
        let mut shared = scope.take(&mut conn, reader()).await.unwrap();
        let alone = scope
            .take(shared.conn(), writer().wait(Wait::Never))
            .await
            .unwrap();
        assert_eq!(db.locks().await.len(), 2);
        finish(alone).await;
        finish(shared).await;
        assert_eq!(db.locks().await, []);
    }
}

#[tokio::test]
async fn two_upgrades_from_shared_to_exclusive_deadlock() {
    let db = database().await;
    for scope in SCOPES {
        let (mut first, mut second) = (db.connect().await, db.connect().await);
        let mut one = scope.take(&mut first, reader()).await.unwrap();
        let mut two = scope.take(&mut second, reader()).await.unwrap();
        let (first, second) = tokio::join!(
            async move {
                let upgraded = match scope.take(one.conn(), writer()).await {
                    Ok(held) => held.finish(Ok::<_, Error>(())).await,
                    Err(error) => Err(error),
                };
                // The victim keeps its shared lock until here, and then lets the other continue.
                one.finish(upgraded).await
            },
            async move {
                let upgraded = match scope.take(two.conn(), writer()).await {
                    Ok(held) => held.finish(Ok::<_, Error>(())).await,
                    Err(error) => Err(error),
                };
                two.finish(upgraded).await
            }
        );
        let deadlocks = [&first, &second]
            .into_iter()
            .filter(|end| matches!(end, Err(Error::Deadlock { .. })))
            .count();
        assert_eq!(deadlocks, 1, "{scope:?}: {first:?} {second:?}");
        assert!(
            first.is_ok() || second.is_ok(),
            "{scope:?}: {first:?} {second:?}"
        );
        db.until_no_locks().await;
    }
    db.until_quiet().await;
}
