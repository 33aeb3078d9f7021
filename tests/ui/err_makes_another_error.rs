#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", err = |error| error)]
async fn run(conn: &mut AsyncPgConnection) -> std::io::Result<()> {
    Ok(())
}

#[advisory_lock(key = "task", err = std::io::Error::other("locked"))]
async fn value(conn: &mut AsyncPgConnection) -> std::io::Result<()> {
    Ok(())
}

fn main() {}
