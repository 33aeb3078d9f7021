#![allow(unused, deprecated)]
use advisory_runtime::{LockKey, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use std::time::Duration;

macro_rules! run {
    ($($name:ident: $args:tt)*) => { $(
        run!(@ $name $args);
    )* };
    (@ $name:ident ($($args:tt)*)) => {
        #[advisory_lock($($args)*)]
        async fn $name(conn: &mut AsyncPgConnection, a: i64, b: i64) -> QueryResult<()> {
            Ok(())
        }
    };
}

run! {
    timeout: (key = "a", timeout = "5s")
    nowait: (key = "a", nowait)
    skip_locked: (key = "a", try = true)
    list: (key = ["a:<a>", "b:<b>"])
    tuple: (key = ("a:<a>", "b:<b>"))
    text: (keys = "a:<a>")
    colon: (key: "a:<a>")
    parentheses: (key("a:<a>"))
    word: (key)
    id: (id = 7)
    scope: (key = "a", scope = transaction)
    scope_in_quotes: (key = "a", scope = "transaction")
    scope_of_an_enum: (key = "a", scope = Scope::Session)
    scope_of_a_number: (key = "a", scope = 1 + 1)
    write: (key = "a", mode = "write")
    read: (key = "a", mode = "read")
    shared: (key = "a", shared = true)
    shared_alone: (key = "a", shared)
    wait: (key = "a", wait = 5)
    wait_seconds: (key = "a", wait = "5 seconds")
    wait_without_a_unit: (key = "a", wait = "5")
    wait_false: (key = "a", wait = false)
    wait_none: (key = "a", wait = "none")
    wait_infinite: (key = "a", wait = "infinite")
    wait_days: (key = "a", wait = "2 days")
    on_held: (key = "a", wait = "never", on_held = "skip")
    otherwise: (key = "a", wait = "never", otherwise = Ok(()))
    max_hold: (key = "a", max_hold = 30)
    queue: (key = "a", queue = "64")
    nested: (key = "a", nested = false)
    isolation: (key = "a", isolation = "SERIALIZABLE")
    isolation_level: (key = "a", isolation_level = "repeatable_read")
    derivation: (key = "a", derivation = "fnv")
    handle: (key = "a", handle = "lock")
    name: (key = "a", name = booking)
    empty_name: (key = "a", name = "")
    conn_in_quotes: (key = "a", conn = "conn")
    conn_by_star: (key = "a", conn = *conn)
    map_err: (key = "a", map_err = |error| error)
    semicolon: (key = "a"; wait = "never")
    ttl: (key = "a", ttl = 30)
    with: (key = "a:<w>", with(w: a + 1))
}

#[derive(LockKey)]
#[lock_key(key = "account:<id>")]
struct AccountLock {
    id: i64,
}

fn main() {}
