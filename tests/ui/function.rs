#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::{PgConnection, QueryResult};
use diesel_async::AsyncPgConnection;

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
fn future(conn: &mut AsyncPgConnection) -> impl Future<Output = QueryResult<()>> {
    async { Ok(()) }
}

trait Books {
    #[advisory_lock(key = "a")]
    async fn book(&self, conn: &mut AsyncPgConnection) -> QueryResult<()>;
}

#[advisory_lock]
async fn without_arguments(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

struct Bookings {
    conn: AsyncPgConnection,
}

impl Bookings {
    #[advisory_lock(key = "<tenant_id>", conn = self.conn)]
    async fn captures_self(&mut self, tenant_id: i64) -> QueryResult<()> {
        println!("{self:p}");
        Ok(())
    }
}

fn main() {}
