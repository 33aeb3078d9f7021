use advisory_runtime::{Error, advisory_lock, lock_key, session, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

crate::guide::runs_the_page!("waiting", "waiting.rs");

struct Report;

/// `None` while another instance writes it.
#[advisory_lock(key = "current-report", name = "report", wait = "never", on_held = Ok(None))]
async fn report(conn: &mut AsyncPgConnection) -> Result<Option<Report>, Error> {
    Ok(Some(Report))
}

#[advisory_lock(key = "seat:<seat>", name = "seat", wait = "2s")]
async fn book(conn: &mut AsyncPgConnection, seat: i64) -> Result<(), Error> {
    Ok(())
}

async fn status(conn: &mut AsyncPgConnection) -> u16 {
    match book(conn, 7).await {
        Ok(()) => 201,
        Err(error) if error.is_busy() => 504, // the wait is over
        Err(_) => 500,
    }
}

struct Cards {
    pool: Pool<AsyncPgConnection>,
}

impl Cards {
    #[advisory_lock(key = "card:<id>", pool = self.pool, queue = 64, wait = "5s")]
    async fn charge(&self, id: i64) -> QueryResult<usize> {
        let charge = diesel::sql_query("INSERT INTO charge VALUES ($1)");
        charge.bind::<BigInt, _>(id).execute(conn).await
    }
}

#[advisory_lock(
    key = "index-build",
    scope = "session",
    pool = pool,
    wait = "30m",
    poll = "250ms"
)]
async fn build_index(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    let build = "CREATE INDEX CONCURRENTLY IF NOT EXISTS booking_day ON booking (day)";
    conn.batch_execute(build).await
}

/// Reads whole tables. Three at once leave room for the rest, however many workers there are.
#[advisory_lock(key = "export", permits = 3, pool = pool, wait = "10m", poll = "1s")]
async fn export(pool: &Pool<AsyncPgConnection>, account: i64) -> QueryResult<usize> {
    let copy = "INSERT INTO export SELECT * FROM event WHERE account = $1";
    let copy = diesel::sql_query(copy).bind::<BigInt, _>(account);
    copy.execute(conn).await
}

/// Two for each tenant; a third is turned away at once: `None`.
#[advisory_lock(key = "preview:<tenant>", permits = 2, wait = "never", on_held = Ok(None))]
async fn preview(conn: &mut AsyncPgConnection, tenant: i64) -> QueryResult<Option<usize>> {
    let render = diesel::sql_query("SELECT render($1)");
    let render = render.bind::<BigInt, _>(tenant);
    Ok(Some(render.execute(conn).await?))
}

#[tokio::test]
async fn a_busy_call_returns_what_it_says() {
    let db = Database::create().await;
    let (mut one, mut other, mut conn) =
        (db.connect().await, db.connect().await, db.connect().await);
    assert!(report(&mut conn).await.unwrap().is_some());
    assert_eq!(status(&mut conn).await, 201);
    let nightly = session::acquire(&mut one, lock_key!("current-report", name = "report")).await;
    let seat = 7;
    let seat = xact::begin(&mut other, lock_key!("seat:<seat: int>", name = "seat")).await;
    assert!(report(&mut conn).await.unwrap().is_none());
    assert_eq!(status(&mut conn).await, 504);
    for held in [nightly.unwrap(), seat.unwrap()] {
        held.finish(Ok::<_, Error>(())).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_queue_and_poll_all_run() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE booking (day int8); CREATE TABLE charge (card int8); CREATE TABLE event (account int8);
         CREATE TABLE export (account int8); INSERT INTO event VALUES (1), (2), (2);
         CREATE FUNCTION render(int8) RETURNS int8 LANGUAGE sql AS 'SELECT $1'",
    )
    .await;
    let pool = db.bb8(4).await;
    let cards = Cards { pool: pool.clone() };
    let (a, b) = tokio::join!(cards.charge(7), cards.charge(7));
    a.and(b).unwrap();
    let (a, b) = tokio::join!(build_index(&pool), build_index(&pool));
    a.and(b).unwrap();
    let (a, b) = tokio::join!(export(&pool, 1), export(&pool, 2));
    assert_eq!((a.unwrap(), b.unwrap()), (1, 2));
    let mut conn = db.connect().await;
    assert_eq!(preview(&mut conn, 7).await.unwrap(), Some(1));
    db.until_no_locks().await;
}
