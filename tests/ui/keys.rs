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

#[advisory_lock(keys = [])]
async fn are_empty(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(keys = "a")]
async fn are_one_text(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(keys = "a", "b", wait = "5s")]
async fn have_no_brackets(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<ids*>")]
async fn of_a_slice_that_is_not_one(conn: &mut AsyncPgConnection, ids: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "<a*>:<b*>")]
async fn of_two_slices(conn: &mut AsyncPgConnection, a: &[i64], b: &[i64]) -> QueryResult<()> {
    Ok(())
}

fn main() {}
