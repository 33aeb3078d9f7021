use advisory_runtime::{LockKey, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

#[advisory_lock(keys = AccountLock { id })]
async fn are_not_an_iterator(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "<ids*>")]
async fn of_a_slice_that_is_not_one(conn: &mut AsyncPgConnection, ids: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

fn main() {}
