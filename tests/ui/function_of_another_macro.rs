#![allow(unused)]
use advisory_runtime::{advisory_lease, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

struct Day(i64);

#[tokio::test]
#[advisory_lock(key = "a", pool = pool())]
async fn below_tokio_test() -> anyhow::Result<()> {
    Ok(())
}

mod run {
    use super::*;

    #[tokio::main]
    #[advisory_lock(key = "a", pool = pool())]
    async fn below_tokio_main() -> anyhow::Result<()> {
        Ok(())
    }
}

fn pool() -> Pool<AsyncPgConnection> {
    unimplemented!() // Only compiled, never called.
}

#[async_trait::async_trait]
trait Reports {
    async fn report(&self, day: Day) -> QueryResult<()>;
    async fn once(&self, day: Day) -> QueryResult<()>;
}

#[async_trait::async_trait]
impl Reports for Pool<AsyncPgConnection> {
    #[advisory_lock(key = "report:<day>", pool = self)]
    async fn report(&self, Day(day): Day) -> QueryResult<()> {
        Ok(())
    }

    #[advisory_lease(key = "once:<day>", pool = self)]
    async fn once(&self, Day(day): Day) -> QueryResult<()> {
        Ok(())
    }
}

fn main() {}
