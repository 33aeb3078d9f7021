#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "report:<month>")]
async fn send(conn: &mut AsyncPgConnection, month: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "report:<day>-<part>", allow_ambiguous = "deployed")]
async fn report(conn: &mut AsyncPgConnection, day: &str, part: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
