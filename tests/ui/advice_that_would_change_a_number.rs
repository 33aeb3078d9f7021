#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

macro_rules! run {
    ($($name:ident: $args:tt)*) => { $(
        run!(@ $name $args);
    )* };
    (@ $name:ident ($($args:tt)*)) => {
        #[advisory_lock($($args)*)]
        async fn $name(conn: &mut AsyncPgConnection, a: i64) -> QueryResult<()> {
            Ok(())
        }
    };
}

run! {
    another_hash: (key = "a", derivation = "fnv1a")
    another_length: (key = "a", derivation = "sha224")
    another_spelling: (key = "a", derivation = "SHA-256")
    milliseconds: (key = "a", wait = 5000)
    milliseconds_in_quotes: (key = "a", wait = "5000")
    no_timeout: (key = "a", wait = 0)
    no_timeout_in_quotes: (key = "a", wait = "0s")
    none: (key = "a", wait = None)
    not_shared: (key = "a", shared = false)
    not_exclusive: (key = "a", exclusive = false)
    waits: (key = "a", nowait = false)
    permits: (key = "a", wait = "never", permits = "5")
    permits_of_a_negative: (key = "a", wait = "never", permits = -1)
}

fn main() {}
