#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", nested = "refused")]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", scope = "session", nested = "refuse")]
async fn nested_of_a_session(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
