#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job")]
async fn run(conn: &mut AsyncPgConnection) -> std::io::Result<()> {
    Ok(())
}

fn main() {}
