use advisory_runtime::{Error, LockKey, advisory_lock, xact};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(LockKey)]
#[lock_key(room:<id>)]
struct RoomLock {
    id: i64,
}

#[advisory_lock(key = name)]
async fn is_a_text(conn: &mut AsyncPgConnection, name: &str) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

async fn is_a_text_in_a_transaction(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    xact::lock(conn, "account:7").await?;
    Ok(())
}

fn main() {}
