//! Pools whose connections are opened by the program's own manager.

use crate::calls::book;
use advisory_runtime::{
    Connection as _, Error, Pool, advisory_lease, advisory_lock, blocking, testing, xact,
};
use advisory_tests::Database;
use advisory_tests::bookings::{committed, database, key_of};
use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use diesel::{ConnectionError, PgConnection, QueryResult, r2d2};
use diesel_async::pooled_connection::PoolableConnection;
use diesel_async::{AsyncConnection, AsyncPgConnection};

/// Opens connections, and may keep those that calls have closed.
struct Own {
    url: String,
    rejects_broken: bool,
}

impl Own {
    fn new(db: &Database, rejects_broken: bool) -> Self {
        let url = db.url().to_owned();
        Self {
            url,
            rejects_broken,
        }
    }
}

impl managed::Manager for Own {
    type Type = AsyncPgConnection;
    type Error = ConnectionError;

    async fn create(&self) -> Result<AsyncPgConnection, ConnectionError> {
        AsyncPgConnection::establish(&self.url).await
    }

    async fn recycle(
        &self,
        conn: &mut AsyncPgConnection,
        _: &Metrics,
    ) -> RecycleResult<ConnectionError> {
        if self.rejects_broken && conn.is_broken() {
            return Err(RecycleError::message("the connection is closed"));
        }
        Ok(())
    }
}

impl bb8::ManageConnection for Own {
    type Connection = AsyncPgConnection;
    type Error = ConnectionError;

    async fn connect(&self) -> Result<AsyncPgConnection, ConnectionError> {
        AsyncPgConnection::establish(&self.url).await
    }

    async fn is_valid(&self, _: &mut AsyncPgConnection) -> Result<(), ConnectionError> {
        Ok(())
    }

    fn has_broken(&self, conn: &mut AsyncPgConnection) -> bool {
        self.rejects_broken && conn.is_broken()
    }
}

impl r2d2::ManageConnection for Own {
    type Connection = PgConnection;
    type Error = r2d2::Error;

    fn connect(&self) -> Result<PgConnection, r2d2::Error> {
        diesel::Connection::establish(&self.url).map_err(r2d2::Error::ConnectionError)
    }

    fn is_valid(&self, _: &mut PgConnection) -> Result<(), r2d2::Error> {
        Ok(())
    }

    fn has_broken(&self, conn: &mut PgConnection) -> bool {
        self.rejects_broken && r2d2::R2D2Connection::is_broken(conn)
    }
}

/// One connection, so that the next call gets the connection of the previous one.
fn deadpool(manager: Own) -> managed::Pool<Own> {
    managed::Pool::builder(manager).max_size(1).build().unwrap()
}

async fn bb8(manager: Own) -> bb8::Pool<Own> {
    bb8::Pool::builder()
        .max_size(1)
        .build(manager)
        .await
        .unwrap()
}

async fn books_and_replaces(pool: &impl Pool, db: &Database) {
    let before = committed(db, 1).await;
    {
        let mut conn = pool.connection().await.unwrap();
        drop(xact::begin(&mut conn, key_of(1)).await.unwrap());
    }
    let mut conn = pool.connection().await.unwrap();
    let mut held = xact::begin(&mut conn, key_of(1)).await.unwrap();
    advisory_tests::bookings::insert(held.conn().pg(), 1, "Ada")
        .await
        .unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    drop(conn);
    assert_eq!(committed(db, 1).await, before + 1);
    testing::assert_replaces_broken(pool).await;
}

#[tokio::test]
async fn their_connections_lock_and_a_dropped_call_closes_one() {
    let db = database().await;
    let pool = deadpool(Own::new(&db, true));
    assert!(
        book(&mut pool.get().await.unwrap(), 7, "Ada")
            .await
            .unwrap()
    );
    books_and_replaces(&pool, &db).await;
    let pool = bb8(Own::new(&db, true)).await;
    assert!(
        !book(&mut pool.get().await.unwrap(), 7, "Bob")
            .await
            .unwrap()
    );
    books_and_replaces(&pool, &db).await;
    db.until_quiet().await;
}

#[tokio::test]
async fn a_blocking_one_too() {
    #[advisory_lock(key = "room:<room>", name = "room")]
    fn book(conn: &mut r2d2::PooledConnection<Own>, room: i64, guest: &str) -> QueryResult<usize> {
        use diesel::RunQueryDsl;
        diesel::sql_query(format!("INSERT INTO booking VALUES ({room}, '{guest}')")).execute(conn)
    }
    let db = database().await;
    let pool = r2d2::Pool::builder()
        .max_size(1)
        .build(Own::new(&db, true))
        .unwrap();
    book(&mut pool.get().unwrap(), 7, "Ada").unwrap();
    let mut conn = pool.get().unwrap();
    let held = blocking::xact::begin(&mut conn, 7).unwrap();
    held.finish(Ok::<_, Error>(())).unwrap();
    assert_eq!(committed(&db, 7).await, 1);
    drop(conn);
    testing::assert_r2d2_replaces_broken(&pool);
}

#[tokio::test]
#[should_panic(expected = "the pool gives out a connection that a locked call has closed")]
async fn an_r2d2_that_keeps_closed_connections_is_found() {
    let db = database().await;
    let manager = Own::new(&db, false);
    let pool = r2d2::Pool::builder().max_size(1).build(manager).unwrap();
    testing::assert_r2d2_replaces_broken(&pool);
}

/// A lease takes connections of such a pool, and opens a separate one.
#[tokio::test]
async fn a_lease_is_held_through_one() {
    #[advisory_lease(key = "leased-by-manager:<id>", name = "leased-by-manager", pool = pool)]
    async fn leased(pool: &managed::Pool<Own>, id: i64) -> Result<i64, Error> {
        Ok(id)
    }
    #[advisory_lease(key = "leased-by-manager:<id>", name = "leased-by-manager", pool = pool)]
    async fn leased_by_bb8(pool: &bb8::Pool<Own>, id: i64) -> Result<i64, Error> {
        Ok(id)
    }
    let db = advisory_tests::leases::database().await;
    assert_eq!(leased(&deadpool(Own::new(&db, true)), 7).await.unwrap(), 7);
    let pool = bb8(Own::new(&db, true)).await;
    assert_eq!(leased_by_bb8(&pool, 8).await.unwrap(), 8);
}

#[tokio::test]
#[should_panic(expected = "the pool gives out a connection that a dropped call has closed")]
async fn a_deadpool_that_keeps_closed_connections_is_found() {
    let db = database().await;
    testing::assert_replaces_broken(&deadpool(Own::new(&db, false))).await;
}

#[tokio::test]
#[should_panic(expected = "the pool gives out a connection that a dropped call has closed")]
async fn a_bb8_that_keeps_closed_connections_is_found() {
    let db = database().await;
    testing::assert_replaces_broken(&bb8(Own::new(&db, false)).await).await;
}
