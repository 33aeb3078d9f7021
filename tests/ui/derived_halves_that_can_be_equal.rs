#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = (7, "<announcement>"), derivation = "hashtext")]
async fn announce(conn: &mut AsyncPgConnection, announcement: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = (7, "<title>:<day>"), derivation = "hashtext")]
async fn publish(conn: &mut AsyncPgConnection, title: &str, day: u32) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = (7, "sale"), derivation = "hashtext", name = "sale")]
async fn sell(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = (7, tenant))]
async fn close(conn: &mut AsyncPgConnection, tenant: i32) -> QueryResult<()> {
    Ok(())
}

// Another first half is another lock.
#[advisory_lock(key = (8, "<announcement>"), derivation = "hashtext")]
async fn withdraw(conn: &mut AsyncPgConnection, announcement: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
