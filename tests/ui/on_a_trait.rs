#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

trait Jobs {
    #[advisory_lock(key = "job")]
    async fn run(&self, conn: &mut AsyncPgConnection) -> QueryResult<()>;
}

fn main() {}
