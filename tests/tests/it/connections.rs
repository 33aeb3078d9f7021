//! The sources of a connection, and the forms of functions that take one.

use advisory_runtime::{Connection, Error, advisory_lock};
use advisory_tests::bookings::{committed, database, insert};
use diesel::QueryResult;
use diesel_async::pooled_connection::{bb8, deadpool};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

#[advisory_lock(key = "room:<room>", name = "room")]
async fn free(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    insert(conn, room, "free").await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn on_bb8(
    conn: &mut bb8::PooledConnection<'_, AsyncPgConnection>,
    room: i64,
) -> QueryResult<usize> {
    insert(conn, room, "bb8").await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn on_deadpool(
    conn: &mut deadpool::Object<AsyncPgConnection>,
    room: i64,
) -> QueryResult<usize> {
    insert(conn, room, "deadpool").await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn generic<C>(conn: &mut C, room: i64) -> QueryResult<usize>
where
    C: Connection,
{
    diesel::sql_query("INSERT INTO booking VALUES ($1, 'generic')")
        .bind::<diesel::sql_types::BigInt, _>(room)
        .execute(conn)
        .await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn impl_trait(
    conn: &mut impl Connection,
    room: i64,
) -> QueryResult<impl Iterator<Item = usize>> {
    Ok(std::iter::once(insert(conn.pg(), room, "impl").await?))
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn by_value(mut conn: deadpool::Object<AsyncPgConnection>, room: i64) -> QueryResult<usize> {
    insert(&mut *conn, room, "by value").await
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact", conn = db)]
async fn renamed(db: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    insert(db, room, "renamed").await
}

struct Request {
    conn: AsyncPgConnection,
    room: i64,
}

#[advisory_lock(key = "room:<request.room: int>", name = "room", scope = "xact", conn = request.conn)]
async fn in_a_request(request: &mut Request) -> QueryResult<usize> {
    insert(&mut request.conn, request.room, "request").await
}

struct Bookings<'c> {
    conn: &'c mut AsyncPgConnection,
    prefix: String,
}

impl Bookings<'_> {
    #[advisory_lock(key = "prefix:<self.prefix>:<room>", name = "prefix", scope = "xact", conn = self.conn)]
    async fn book(&mut self, room: i64) -> QueryResult<usize> {
        struct Local(usize);
        impl Local {
            fn get(&self) -> usize {
                self.0
            }
        }
        let guest = format!("{}", self.prefix);
        Ok(Local(insert(self.conn, room, &guest).await?).get())
    }

    #[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
    async fn on(&self, conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
        insert(conn, room, &self.prefix).await
    }
}

struct Repository {
    pool: deadpool::Pool<AsyncPgConnection>,
    tenant: String,
}

#[derive(Debug)]
enum RepositoryError {
    #[expect(dead_code, reason = "shown by Debug when an assertion fails")]
    Pool(deadpool::PoolError),
    #[expect(dead_code, reason = "shown by Debug when an assertion fails")]
    Diesel(diesel::result::Error),
    #[expect(dead_code, reason = "shown by Debug when an assertion fails")]
    Lock(Error),
}

impl From<deadpool::PoolError> for RepositoryError {
    fn from(error: deadpool::PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<diesel::result::Error> for RepositoryError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Diesel(error)
    }
}

impl From<Error> for RepositoryError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl Repository {
    #[advisory_lock(key = "tenant:<self.tenant>:<room>", scope = "xact", conn = self.pool.get().await?)]
    async fn book(&self, room: i64) -> Result<usize, RepositoryError> {
        Ok(insert(conn, room, &self.tenant).await?)
    }
}

#[advisory_lock(key = "ids:<ids.0>:<room>", scope = "xact")]
async fn patterns(
    conn: &mut AsyncPgConnection,
    ids: (i64, i64),
    Room { room, .. }: Room,
    [_, second]: [&str; 2],
) -> QueryResult<usize> {
    insert(conn, room + ids.1, second).await
}

struct Room {
    room: i64,
    _floor: u8,
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn recursive(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
    if room == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(recursive(conn, room - 1)).await?)
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn early_return<'a>(
    conn: &mut AsyncPgConnection,
    room: i64,
    guest: &'a str,
) -> QueryResult<Option<&'a str>> {
    if room < 0 {
        return Ok(None);
    }
    insert(conn, room, guest).await?;
    Ok(Some(guest))
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn not_send(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    let local = std::rc::Rc::new(room);
    insert(conn, *local, "rc").await.inspect(|_| drop(local))
}

fn send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn every_shape_of_function_locks_and_commits() {
    let db = database().await;
    let pool = db.deadpool(2);
    let conn = &mut db.connect().await;
    send(free(conn, 1)).await.unwrap();
    send(on_bb8(&mut db.bb8(1).await.get().await.unwrap(), 2))
        .await
        .unwrap();
    send(on_deadpool(&mut pool.get().await.unwrap(), 3))
        .await
        .unwrap();
    send(generic(conn, 4)).await.unwrap();
    send(generic(&mut pool.get().await.unwrap(), 5))
        .await
        .unwrap();
    assert_eq!(send(impl_trait(conn, 6)).await.unwrap().sum::<usize>(), 1);
    send(by_value(pool.get().await.unwrap(), 7)).await.unwrap();
    send(renamed(conn, 8)).await.unwrap();
    let mut request = Request {
        conn: db.connect().await,
        room: 9,
    };
    send(in_a_request(&mut request)).await.unwrap();
    let mut bookings = Bookings {
        conn,
        prefix: "p".into(),
    };
    send(bookings.book(10)).await.unwrap();
    let other = &mut db.connect().await;
    send(bookings.on(other, 11)).await.unwrap();
    let repository = Repository {
        pool: pool.clone(),
        tenant: "t".into(),
    };
    send(repository.book(12)).await.unwrap();
    send(patterns(
        other,
        (1, 10),
        Room { room: 3, _floor: 0 },
        ["", "b"],
    ))
    .await
    .unwrap();
    assert_eq!(send(recursive(other, 3)).await.unwrap(), 3);
    assert_eq!(send(early_return(other, -1, "Ada")).await.unwrap(), None);
    assert_eq!(
        send(early_return(other, 14, "Ada")).await.unwrap(),
        Some("Ada")
    );
    not_send(other, 15).await.unwrap();
    for room in 1..=15 {
        assert_eq!(committed(&db, room).await, 1, "room {room}");
    }
    db.until_quiet().await;
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn with_bounds<F: Fn(i64) -> i64 + Send, T: Into<(i64, i64)>>(
    conn: &mut AsyncPgConnection,
    room: i64,
    shift: F,
    pair: T,
) -> QueryResult<usize> {
    let (_, guest) = pair.into();
    insert(conn, shift(room), &guest.to_string()).await
}

#[async_trait::async_trait]
trait Rooms {
    async fn book(&mut self, room: i64, guest: &str) -> QueryResult<usize>;
    async fn move_to(&self, conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize>;
    async fn close(&self, room: i64) -> anyhow::Result<usize>;
}

#[async_trait::async_trait]
impl Rooms for PgRooms {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.conn)]
    async fn book(&mut self, room: i64, guest: &str) -> QueryResult<usize> {
        if guest.is_empty() {
            return Err(diesel::result::Error::NotFound);
        }
        let guest = format!("{}{guest}", self.prefix);
        insert(&mut self.conn, room, &guest).await
    }

    #[advisory_lock(key = "prefix:<self.prefix>:<room>", name = "prefix")]
    async fn move_to(&self, conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
        insert(conn, room, &self.prefix).await
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.pool)]
    async fn close(&self, room: i64) -> anyhow::Result<usize> {
        Ok(insert(conn, room, &self.prefix).await?)
    }
}

struct PgRooms {
    conn: AsyncPgConnection,
    pool: deadpool::Pool<AsyncPgConnection>,
    prefix: String,
}

#[tokio::test]
async fn an_async_trait_is_locked_on_its_postgresql_implementation() {
    let db = database().await;
    let mut rooms = PgRooms {
        conn: db.connect().await,
        pool: db.deadpool(1),
        prefix: "p".into(),
    };
    let other = &mut db.connect().await;
    with_bounds(other, 1, |room| room + 10, (0, 1))
        .await
        .unwrap();
    let service: &mut (dyn Rooms + Send + Sync) = &mut rooms;
    send(service.book(1, "Ada")).await.unwrap();
    send(service.book(1, "")).await.unwrap_err();
    send(service.move_to(other, 2)).await.unwrap();
    send(service.close(3)).await.unwrap();
    for room in [1, 2, 3, 11] {
        assert_eq!(committed(&db, room).await, 1, "room {room}");
    }
    db.until_quiet().await;
}
