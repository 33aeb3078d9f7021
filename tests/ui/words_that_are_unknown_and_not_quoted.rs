#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", scope = session, derivation = md6)]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
