//! A lock that is acquired in the middle of a transaction, after a first read: it is held to the
//! end.

use crate::calls::RoomLock;
use advisory_runtime::{Error, LockKey, Request, Wait, advisory_lock, blocking, xact};
use advisory_tests::bookings::{bookings, committed, database, insert, key_of};
use advisory_tests::futures::spawn;
use advisory_tests::held_keys::keys;
use advisory_tests::{LockedKey, Proxy, assert_error, debug_checks_are_on};
use diesel::connection::Connection as _;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn it_is_held_to_the_end_of_the_transaction() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.transaction::<_, Error, _>(async |conn| {
        let room = bookings(conn, 7).await? + 7;
        let acquired = xact::lock(conn, RoomLock { room }).await?;
        assert_eq!(acquired.key(), key_of(7).into());
        insert(conn, 7, "Ada").await?;
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((committed(&db, 7).await, db.locks().await), (1, vec![]));
}

#[tokio::test]
async fn reads_after_it_see_the_commit_of_the_previous_holder() {
    let db = database().await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    let mut held = xact::begin(&mut first, key_of(7)).await.unwrap();
    insert(held.conn(), 7, "Ada").await.unwrap();
    let waiting = spawn(async move {
        second
            .transaction::<_, Error, _>(async |conn| {
                let before = bookings(conn, 7).await?;
                xact::lock(conn, RoomLock { room: 7 }).await?;
                Ok((before, bookings(conn, 7).await?))
            })
            .await
    });
    db.until_waiting(key_of(7)).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), (0, 1));
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_releases_it() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.transaction::<_, Error, _>(async |conn| {
        let inner = conn.transaction::<(), Error, _>(async |conn| {
            xact::lock(conn, RoomLock { room: 7 }).await?;
            assert_eq!(db.locks().await.len(), 1);
            Err(DieselError::NotFound.into())
        });
        inner.await.unwrap_err();
        assert_eq!(db.locks().await, []);
        insert(conn, 7, "Ada").await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test]
async fn the_body_of_a_locked_function_takes_another_lock() {
    #[advisory_lock(key = "hotel:<hotel>", name = "hotel")]
    async fn book_first_free(
        conn: &mut AsyncPgConnection,
        hotel: i64,
        db: &advisory_tests::Database,
    ) -> Result<(), Error> {
        xact::lock(conn, Request::all([key_of(hotel), key_of(hotel + 1)])).await?;
        assert_eq!(db.locks().await.len(), 3);
        insert(conn, hotel, "Ada").await?;
        Ok(())
    }
    let db = database().await;
    book_first_free(&mut db.connect().await, 7, &db)
        .await
        .unwrap();
    assert_eq!((committed(&db, 7).await, db.locks().await), (1, vec![]));
}

#[tokio::test]
async fn a_polling_request_ends_and_the_transaction_stays_usable() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        insert(conn, 7, "Ada").await?;
        let request = Request::new(RoomLock { room: 7 }).poll(SHORT / 10);
        let refused = xact::lock(conn, request.clone().wait(SHORT)).await;
        assert_error!(refused, TimedOut { source: None, .. });
        // Between two tries the session's last query names the lock, for the live view.
        let named = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND state = 'idle in transaction' AND query LIKE '/*advisory:room:<room>*/%'";
        assert_eq!(db.count(named).await, 1);
        held.finish(Ok::<_, Error>(())).await?;
        let acquired = xact::lock(conn, request.wait(Wait::Forever)).await?;
        assert_eq!(acquired.key(), key_of(7).into());
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
        // With permits it takes one that is free.
        let request = Request::new(8).permits(2).wait(Wait::Never);
        xact::lock(conn, request).await?;
        assert_eq!(db.locks().await.len(), 2);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((committed(&db, 7).await, db.locks().await), (1, vec![]));
}

#[tokio::test]
async fn shared_ones_are_held_together() {
    let db = database().await;
    let (mut one, mut other) = (db.connect().await, db.connect().await);
    one.transaction::<_, Error, _>(async |one| {
        xact::lock(one, Request::new(key_of(7)).shared()).await?;
        other
            .transaction::<_, Error, _>(async |other| {
                xact::lock(other, Request::new(key_of(7)).shared()).await?;
                assert_eq!(db.locks().await.len(), 2);
                let alone = Request::new(key_of(7)).wait(Wait::Never);
                let missed = xact::lock(other, alone).await.unwrap_err();
                assert!(missed.is_busy(), "{missed:?}");
                Ok(())
            })
            .await
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn it_is_one_round_trip_and_a_try_for_a_permit_is_three() {
    if debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        proxy.reset();
        xact::lock(conn, RoomLock { room: 7 }).await?;
        assert_eq!(proxy.round_trips(), 1, "{:#?}", proxy.queries());
        xact::lock(conn, Request::all([1, 2, 3]).wait(SHORT)).await?;
        assert_eq!(proxy.round_trips(), 2, "{:#?}", proxy.queries());
        let permits = Request::new(8).permits(2).wait(Wait::Never);
        for _ in 0..2 {
            // The query is prepared with the savepoint, and run, and the savepoint is released.
            proxy.reset();
            xact::lock(conn, permits.clone()).await?;
            assert_eq!(proxy.round_trips(), 3, "{:#?}", proxy.queries());
        }
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn max_hold_bounds_an_idle_client_to_the_end_of_the_transaction() {
    let db = database().await;
    let mut conn = db.connect().await;
    let idle = "SELECT current_setting('idle_in_transaction_session_timeout') = '2s'";
    let is_bounded = async |conn: &mut AsyncPgConnection| {
        use diesel_async::RunQueryDsl;
        diesel::dsl::sql::<diesel::sql_types::Bool>(idle)
            .get_result::<bool>(conn)
            .await
    };
    conn.transaction::<_, Error, _>(async |conn| {
        let request = Request::new(7).max_hold(Duration::from_secs(1));
        xact::lock(conn, request).await?;
        assert!(is_bounded(conn).await?);
        Ok(())
    })
    .await
    .unwrap();
    assert!(!is_bounded(&mut conn).await.unwrap());
}

#[derive(LockKey)]
#[lock_key("mid-a:<id>")]
struct MidA {
    id: i64,
}

#[derive(LockKey)]
#[lock_key("mid-b:<id>")]
struct MidB {
    id: i64,
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn the_order_of_locks_knows_it() {
    let db = database().await;
    let mut conn = db.connect().await;
    let both = conn.transaction::<_, Error, _>(async |conn| {
        xact::lock(conn, MidA { id: 1 }).await?;
        xact::lock(conn, MidB { id: 1 }).await
    });
    both.await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        xact::lock(conn, MidB { id: 1 }).await?;
        let held = xact::begin(conn, MidA { id: 1 }).await?;
        held.finish(Ok(())).await
    })
    .await
    .unwrap();
    if debug_checks_are_on() {
        let edges = advisory_tests::lock_order::edges("mid-");
        assert_eq!(
            edges,
            ["mid-a:<id> > mid-b:<id>", "mid-b:<id> > mid-a:<id>"]
        );
        let places = advisory_tests::lock_order::order("mid-").cycles.remove(0);
        assert!(
            places
                .iter()
                .all(|edge| edge.asked.place.contains("mid_transaction.rs:")),
            "{places:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_blocking_connection_it_is_the_same() {
    let db = database().await;
    let (mut holder, mut conn) = (db.establish(), db.establish());
    assert_error!(blocking::xact::lock(&mut conn, key_of(7)), NotInTransaction);
    let held = blocking::xact::begin(&mut holder, key_of(7)).unwrap();
    conn.transaction::<_, Error, _>(|conn| {
        for wait in [Wait::Never, Wait::For(SHORT)] {
            let request = Request::new(key_of(7)).wait(wait);
            let busy = blocking::xact::lock(conn, request).unwrap_err();
            assert!(busy.is_busy(), "{busy:?}");
        }
        let acquired = blocking::xact::lock(conn, RoomLock { room: 8 })?;
        assert_eq!(acquired.keys(), [key_of(8).into()]);
        assert_eq!(advisory_tests::blocking::held_by(conn)?, 1);
        advisory_tests::blocking::insert(conn, 8, "Ada")?;
        Ok(())
    })
    .unwrap();
    held.finish(Ok::<_, Error>(())).unwrap();
    assert_eq!((committed(&db, 8).await, db.locks().await), (1, vec![]));
    conn.transaction::<(), Error, _>(|conn| {
        advisory_tests::blocking::execute(conn, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")?;
        let error = blocking::xact::lock(conn, RoomLock { room: 7 }).unwrap_err();
        assert_error!(error, StaleSnapshot);
        Ok(())
    })
    .unwrap();
}
