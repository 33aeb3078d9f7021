#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::{PgConnection, QueryResult};
use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};

struct Repository;

#[advisory_lock(key = "a")]
impl Repository {
    async fn run(&self, conn: &mut AsyncPgConnection) -> QueryResult<()> {
        Ok(())
    }
}

#[advisory_lock(key = "a")]
struct Job {
    id: i64,
}

#[advisory_lock(key = "a")]
mod jobs {}

#[advisory_lock(key = "a")]
const fn constant(conn: &mut PgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "a")]
async fn no_connection(id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "a")]
fn no_blocking_connection(id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "a")]
async fn pool(db: &Pool<AsyncPgConnection>) -> anyhow::Result<()> {
    Ok(())
}

#[advisory_lock(key = "a")]
fn not_async(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "a")]
async fn blocking(conn: &mut PgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "a")]
fn future(conn: &mut AsyncPgConnection) -> impl Future<Output = QueryResult<()>> {
    async { Ok(()) }
}

#[advisory_lock(key = "a")]
async fn option(conn: &mut AsyncPgConnection) -> Option<Vec<u8>> {
    None
}

#[advisory_lock(key = "a")]
async fn nothing(conn: &mut AsyncPgConnection) {}

#[advisory_lock(key = "a")]
async fn anything(conn: &mut AsyncPgConnection) -> impl Iterator<Item = u8> {
    [0].into_iter()
}

trait Books {
    #[advisory_lock(key = "a")]
    async fn book(&self, conn: &mut AsyncPgConnection) -> QueryResult<()>;
}

#[advisory_lock]
async fn without_arguments(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock("a:<id>")]
async fn without_a_name(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
