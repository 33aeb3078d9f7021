#![allow(unused, deprecated)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

macro_rules! leased {
    ($($name:ident: $args:tt)*) => { $(
        leased!(@ $name $args);
    )* };
    (@ $name:ident ($($args:tt)*)) => {
        #[advisory_lease($($args)*)]
        async fn $name(pool: &Pool<AsyncPgConnection>, conn: &mut AsyncPgConnection, id: i64, ids: &[i64], a: &str, b: &str) -> QueryResult<()> {
            Ok(())
        }
    };
}

leased! {
    of_a_connection: (key = "job", conn = pool.get().await?)
    with_a_connection_and_a_pool: (key = "job", pool = pool, conn = conn)
    with_a_mode: (key = "job", pool = pool, mode = "shared")
    with_a_scope: (key = "job", scope = "lease", pool = pool)
    with_arguments_of_a_lock: (key = "job", pool = pool, poll = "1s", poll_max = "2s", permits = 3, isolation = "serializable", nested = "refuse", queue = 4, derivation = "md5", max_keys = 8, allow_ambiguous = "old", guards = "jobs")
    with_max_hold: (key = "job", pool = pool, max_hold = "5m")
    with_many_mistakes: (keys = ["a", "b"], mode = "shared", isolation = "serializable", nested = "refuse", queue = 4, derivation = "md5", conn = conn, ttl = "9s", renew = "10s", on_held = Ok(()), handle = conn)
    key_is_a_list: (key = ["job:<id>", "job:<a>"], pool = pool)
    key_is_a_pair: (key = (7, "job:<id>"), pool = pool)
    key_of_a_slice: (key = "job:<ids*>", pool = pool, max_keys = 8)
    key_is_ambiguous: (key = "job:<a><b>", pool = pool)
    several_keys: (keys = ["job:<id>", "job:<a>"], pool = pool)
    ttl_is_forever: (key = "job", pool = pool, ttl = "forever")
    ttl_is_zero: (key = "job", pool = pool, ttl = "0s")
    renew_is_zero: (key = "job", pool = pool, renew = "0s")
    renew_without_a_unit: (key = "job", pool = pool, renew = 20)
    renewed_later_than_the_default: (key = "job", pool = pool, renew = "2m")
    renewed_too_late: (key = "job", pool = pool, ttl = "30s", renew = "30s")
    keep_is_too_long: (key = "job", pool = pool, keep = "9000h")
    keep_is_zero: (key = "job", pool = pool, keep = "0s")
    on_done_is_a_text: (key = "job", pool = pool, keep = "24h", on_done = "skip")
    on_done_without_keep: (key = "job", pool = pool, on_done = Ok(()))
    on_held_with_keep_and_without_on_done: (key = "job", pool = pool, keep = "24h", wait = "never", on_held = Ok(()))
    handle_is_a_parameter: (key = "job", pool = pool, handle = pool)
}

#[advisory_lease(key = "job")]
async fn without_a_pool(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

struct Jobs;

impl Jobs {
    #[advisory_lease(key = "job")]
    async fn without_a_pool(&self) -> QueryResult<()> {
        Ok(())
    }
}

#[advisory_lease(key = "job", pool = pool)]
fn of_a_blocking_function(pool: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
