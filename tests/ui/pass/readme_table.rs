//! The rows of the README's table "I need …", in its order. A test finds the code of each row here.
#![deny(warnings)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]

use advisory_runtime::claim::{self, Claim, Claimed};
use advisory_runtime::testing::Observer;
use advisory_runtime::{
    Holding, LockKey, Pool as _, Request, advisory_lease, advisory_lock, lease, migrations, testing,
};
use chrono::NaiveDate;
use diesel::prelude::*;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use diesel_migrations::EmbeddedMigrations;
use std::convert::Infallible;
use uuid::Uuid;

diesel::table! {
    job (id) {
        id -> BigInt,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

async fn write(conn: &mut AsyncPgConnection) -> QueryResult<usize> {
    diesel::sql_query("INSERT").execute(conn).await
}

#[advisory_lock(key = "<tenant_id>:<date>", scope = "xact")]
async fn book(
    conn: &mut AsyncPgConnection,
    tenant_id: Uuid,
    date: NaiveDate,
) -> QueryResult<usize> {
    write(conn).await
}

#[advisory_lock(keys = ["account:<from>", "account:<to>"], name = "account")]
async fn transfer(conn: &mut AsyncPgConnection, from: i64, to: i64) -> QueryResult<usize> {
    write(conn).await
}

struct Rooms {
    pool: Pool<AsyncPgConnection>,
}

impl Rooms {
    #[advisory_lock(key = "room:<room>", pool = self.pool)]
    async fn clean(&self, room: i64) -> QueryResult<usize> {
        write(conn).await
    }
}

#[advisory_lease(key = "reports:<day>", pool = pool, keep = "48h", on_done = Ok(()))]
async fn report(pool: &Pool<AsyncPgConnection>, day: NaiveDate) -> Result<(), lease::Error> {
    write(&mut *pool.connection().await?).await?;
    Ok(())
}

const MIGRATIONS: EmbeddedMigrations = EmbeddedMigrations::new(&[]);

async fn start(url: &str) -> anyhow::Result<()> {
    migrations::run(url, MIGRATIONS).await?;
    Ok(())
}

async fn clean_up(_: &lease::Lease) -> Result<(), lease::Error> {
    Ok(())
}

async fn lead(pool: Pool<AsyncPgConnection>) -> Result<Infallible, lease::Error> {
    lease::lead(&pool, lease::Request::text("cleanup"), async |term| clean_up(&term).await).await
}

#[advisory_lease(key = "webhook:<id>", pool = pool, keep = "24h", wait = "never", on_done = Ok(()), handle = lease)]
async fn webhook(pool: &Pool<AsyncPgConnection>, id: &str) -> Result<(), lease::Error> {
    let mut conn = pool.connection().await?;
    conn.transaction(async |conn| {
        write(conn).await?;
        lease.complete(conn).await
    })
    .await
}

#[derive(Queryable, Selectable)]
#[derive(Claim)]
#[diesel(table_name = job)]
struct Job {
    id: i64,
}

async fn work(pool: &Pool<AsyncPgConnection>) -> Result<(), claim::Error> {
    let job = claim::next::<Job>("worker-7").first(&mut pool.connection().await?).await?;
    drop(job);
    let worker = claim::Worker::new(pool, "worker-7");
    worker
        .run(async |_: Claimed<Job>| Ok::<(), claim::Error>(()))
        .await
}

fn work_on_threads(pool: &diesel::r2d2::Pool<diesel::r2d2::ConnectionManager<PgConnection>>) -> Result<(), claim::Error> {
    let worker = claim::Worker::new(pool, "worker-7");
    worker.run_blocking(|_: Claimed<Job>| Ok::<(), claim::Error>(()))
}

#[advisory_lock(key = "export:<id>", permits = 3, wait = "never")]
async fn export(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<usize> {
    write(conn).await
}

#[advisory_lock(key = "import:<id>", wait = "5s")]
async fn import(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<usize> {
    write(conn).await
}

#[derive(LockKey)]
#[lock_key("slot:<id>")]
struct SlotLock {
    id: i64,
}

async fn insert(conn: &mut AsyncPgConnection, slot: Holding<'_, SlotLock>) -> QueryResult<usize> {
    let _ = slot.key();
    write(conn).await
}

async fn one_waits(
    mut observer: Observer<AsyncPgConnection>,
    request: Request,
    [a, b]: &mut [AsyncPgConnection; 2],
) {
    let (first, second) = (export(a, 1), export(b, 1));
    let results = testing::Observer::interleave(&mut observer, request, first, second).await;
    drop(results);
}

fn main() {}
