#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job")]
fn run(conn: &mut AsyncPgConnection) -> impl Future<Output = QueryResult<()>> {
    async { Ok(()) }
}

fn main() {}
