//! `pool = <expression>`: the call gets its connection from a pool, and the pool's error is one of
//! the lock's.

use advisory_runtime::{
    Connection as _, Error, Pool, PoolError, Request, Wait, advisory_lock, blocking, session,
};
use advisory_tests::bookings::{committed, database, insert};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::{Database, assert_error, assert_matches, debug_checks_are_on};
use diesel::QueryResult;
use diesel::pg::PgConnection;
use diesel::r2d2::{self, ConnectionManager};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Bb8 = bb8::Pool<AsyncPgConnection>;
type R2d2 = r2d2::Pool<ConnectionManager<PgConnection>>;

const LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct OwnError(Error);

impl From<Error> for OwnError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

struct Repository<P> {
    pool: P,
    bodies: AtomicUsize,
}

impl<P> Repository<P> {
    fn new(pool: P) -> Self {
        let bodies = AtomicUsize::new(0);
        Self { pool, bodies }
    }

    fn count(&self) {
        self.bodies.fetch_add(1, Ordering::Relaxed);
    }
}

impl<P: Pool> Repository<P> {
    #[advisory_lock(key = "pooled:<room>", name = "pooled", pool = self.pool, wait = "5s", on_held = Ok(0))]
    async fn with_diesels_error(&self, room: i64) -> QueryResult<usize> {
        self.count();
        insert(conn.pg(), room, "Ada").await
    }

    #[advisory_lock(key = "pooled:<room>", name = "pooled", scope = "session", pool = self.pool, queue = 8)]
    async fn with_own_error(&self, room: i64) -> Result<usize, OwnError> {
        self.count();
        let inserted = insert(conn.pg(), room, "Ada").await;
        inserted.map_err(|error| OwnError(error.into()))
    }

    #[advisory_lock(key = "pooled:<room>", name = "pooled", pool = self.pool, wait = "5s", poll = "1ms", on_held = Ok(0), err = |error| format!("{error}"))]
    async fn with_err(&self, room: i64) -> Result<usize, String> {
        self.count();
        let inserted = insert(conn.pg(), room, "Ada").await;
        inserted.map_err(|error| error.to_string())
    }

    #[advisory_lock(key = "pooled:<room>", name = "pooled", pool = self.pool, max_hold = "9s", handle = lock)]
    async fn undone(&self, room: i64) -> QueryResult<usize> {
        insert(conn.pg(), room, "Ada").await?;
        lock.check(conn).await?;
        Err(diesel::result::Error::RollbackTransaction)
    }
}

struct Primary(Bb8);

impl Pool for Primary {
    type Connection<'p> = bb8::PooledConnection<'p, AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
        self.0.connection().await
    }
}

async fn impatient_bb8(db: &Database) -> Bb8 {
    let manager = AsyncDieselConnectionManager::new(db.url());
    // It is opened before the first checkout, which has a time limit.
    let pool = Bb8::builder()
        .max_size(1)
        .min_idle(1)
        .connection_timeout(LIMIT);
    pool.build(manager).await.unwrap()
}

async fn runs<P: Pool>(db: &Database, pool: P) {
    let repository = Repository::new(pool);
    let before = committed(db, 7).await;
    assert_eq!(repository.with_diesels_error(7).await.unwrap(), 1);
    assert_eq!(repository.with_own_error(7).await.unwrap(), 1);
    assert_eq!(repository.with_err(7).await.unwrap(), 1);
    repository.undone(7).await.unwrap_err();
    assert_eq!(committed(db, 7).await, before + 3);
    assert_eq!(repository.bodies.into_inner(), 3);
    db.until_quiet().await;
}

#[tokio::test]
async fn every_pool_gives_the_connection_of_the_lock() {
    let db = database().await;
    runs(&db, db.bb8(1).await).await;
    runs(&db, db.deadpool(1)).await;
    runs(&db, Arc::new(Primary(db.bb8(1).await))).await;
}

async fn fails<P: Pool>(pool: P) {
    let taken = pool.connection().await.unwrap();
    let repository = Repository::new(&pool);
    let error = repository.with_diesels_error(7).await.unwrap_err();
    assert_matches!(error, diesel::result::Error::QueryBuilderError(_));
    let found = Error::find(&error).unwrap();
    assert_matches!(*found, Error::Pool(_));
    let OwnError(error) = repository.with_own_error(7).await.unwrap_err();
    assert_error!(error, Pool);
    assert!(!error.is_busy());
    let text = repository.with_err(7).await.unwrap_err();
    assert!(
        text.starts_with("could not get a connection from the pool: "),
        "{text}"
    );
    assert_eq!(repository.bodies.load(Ordering::Relaxed), 0);
    drop(taken);
    // The next call gets it.
    assert_eq!(repository.with_own_error(7).await.unwrap(), 1);
}

#[tokio::test]
async fn a_pool_without_a_connection_is_an_error_of_the_lock() {
    let db = database().await;
    fails(impatient_bb8(&db).await).await;
    fails(Primary(impatient_bb8(&db).await)).await;
    db.until_quiet().await;
}

struct BlockingRepository<P> {
    pool: P,
}

impl<P: blocking::Pool> BlockingRepository<P> {
    #[advisory_lock(key = "pooled:<room>", name = "pooled", pool = self.pool, wait = "5s", on_held = Ok(false))]
    fn with_diesels_error(&self, room: i64) -> QueryResult<bool> {
        advisory_tests::blocking::book_unlocked(blocking::Connection::pg(conn), room, "Ada")
    }

    #[advisory_lock(key = "pooled:<room>", name = "pooled", scope = "session", pool = &self.pool, queue = 8, poll = "1ms")]
    fn with_own_error(&self, room: i64) -> Result<bool, OwnError> {
        let booked =
            advisory_tests::blocking::book_unlocked(blocking::Connection::pg(conn), room, "Ada");
        booked.map_err(|error| OwnError(error.into()))
    }
}

struct BlockingPrimary(R2d2);

impl blocking::Pool for BlockingPrimary {
    type Connection = r2d2::PooledConnection<ConnectionManager<PgConnection>>;

    fn connection(&self) -> Result<Self::Connection, PoolError> {
        blocking::Pool::connection(&self.0)
    }
}

fn blocking_runs_and_fails<P: blocking::Pool>(pool: P, room: i64) {
    let repository = BlockingRepository { pool };
    assert!(repository.with_diesels_error(room).unwrap());
    assert!(!repository.with_own_error(room).unwrap());
    let taken = repository.pool.connection().unwrap();
    let error = repository.with_diesels_error(room).unwrap_err();
    let found = Error::find(&error).unwrap();
    assert_matches!(*found, Error::Pool(_));
    let OwnError(error) = repository.with_own_error(room).unwrap_err();
    assert_error!(error, Pool);
    drop(taken);
    assert!(!repository.with_diesels_error(room).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_pool_gives_the_connection_or_its_error() {
    let db = database().await;
    let r2d2: R2d2 = db.impatient_r2d2(LIMIT).await;
    let own = Arc::new(BlockingPrimary(db.impatient_r2d2(LIMIT).await));
    let calls = spawn_blocking(move || {
        blocking_runs_and_fails(r2d2, 7);
        blocking_runs_and_fails(own, 8);
    });
    calls.await.unwrap();
    for room in [7, 8] {
        assert_eq!(committed(&db, room).await, 1);
    }
    db.until_quiet().await;
}

/// bb8 reports a timeout, whatever the reason is.
#[tokio::test]
async fn a_pool_of_bb8_says_why_it_has_no_connection() {
    let db = Database::create().await;
    let (server, _) = db.url().rsplit_once('/').unwrap();
    let manager = AsyncDieselConnectionManager::new(format!("{server}/misspelt"));
    let pool = Bb8::builder().max_size(1).connection_timeout(LIMIT);
    let pool = pool.build(manager).await.unwrap();
    for taken in [
        Pool::connection(&pool).await.map(drop),
        pool.owned_connection().await.map(drop),
    ] {
        let error = taken.unwrap_err();
        assert!(error.to_string().contains("misspelt"), "{error}");
    }
    let pool = impatient_bb8(&db).await;
    let first = Pool::connection(&pool).await.unwrap();
    let error = Pool::connection(&pool).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("in use: 1"), "{error}");
    drop(first);
}

/// A task that holds the pool's only connection asks for another one.
#[tokio::test]
async fn a_nested_call_that_gets_no_connection_says_to_pass_the_outer_one() {
    #[advisory_lock(key = "around:<room>", pool = pool)]
    async fn around(pool: &Bb8, room: i64) -> Result<usize, OwnError> {
        conn.pg();
        Repository::new(pool.clone()).with_own_error(room).await
    }
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let pool = impatient_bb8(&db).await;
    let OwnError(error) = around(&pool, 7).await.unwrap_err();
    assert_error!(error, Pool);
    assert!(error.to_string().contains("`conn = conn`"), "{error}");
    // Outside of a body the pool's own words are enough.
    let _only = pool.get().await.unwrap();
    let OwnError(error) = around(&pool, 7).await.unwrap_err();
    assert!(!error.to_string().contains("`conn = conn`"), "{error}");
}

/// The pool itself has no time-out.
#[tokio::test]
async fn a_call_that_does_not_wait_bounds_its_wait_for_the_pool() {
    #[advisory_lock(key = "at-once", pool = pool, wait = "never", on_held = Ok(0))]
    async fn at_once(pool: &deadpool::Pool<AsyncPgConnection>) -> Result<usize, OwnError> {
        conn.pg();
        Ok(1)
    }
    let db = database().await;
    let pool = db.deadpool(1);
    let only = pool.get().await.unwrap();
    let never = Request::new(7).wait(Wait::Never);
    let (attribute, owned) = tokio::join!(at_once(&pool), session::acquire_from(&pool, never));
    let OwnError(error) = attribute.unwrap_err();
    for error in [error, owned.unwrap_err()] {
        assert_error!(error, Pool);
        assert!(error.to_string().contains("within 5s"), "{error}");
    }
    drop(only);
    assert_eq!(at_once(&pool).await.unwrap(), 1);
}
