#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

macro_rules! locked {
    ($($name:ident),*) => { $(
        #[advisory_lock(key = "job:<id>")]
        async fn $name(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
            Ok(())
        }
    )* };
}
locked!(first, second);

fn main() {}
