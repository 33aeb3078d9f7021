#![allow(unused, deprecated)]
use advisory_runtime::{LockKey, advisory_lease, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

macro_rules! run {
    ($($name:ident: $args:tt)*) => { $(
        run!(@ $name $args);
    )* };
    (@ $name:ident ($($args:tt)*)) => {
        #[advisory_lock($($args)*)]
        async fn $name(conn: &mut AsyncPgConnection, a: i64, b: &str) -> QueryResult<()> {
            Ok(())
        }
    };
}

run! {
    half: (key = (23_405, "<b>"))
    half_of_64_bits: (key = (23_405, "<b>"), derivation = "md5")
    half_of_an_unknown_hash: (key = (23_405, "<b>"), derivation = "crc32")
    among_others: (keys = [(23_405, "<b>"), "job"])
    first_half_is_too_large: (key = (3_000_000_000, "<b>"), derivation = "hashtext")
    half_that_is_ambiguous: (key = (23_405, "<a><b>"), derivation = "hashtext")
    other_half: (key = ("<b>", CLASS))
    first_half_is_a_constant: (key = (CLASS, "<b>"), derivation = "hashtext")
    halves: (key = ("<a>", "<b>"))
    without_a_name: (23_405, 7)
    several: (key = ("<a>", "<b>", "c"))
    list: (key = [7, "<b>"])
}

#[advisory_lease(key = (23_405, "<b>"), pool = pool)]
async fn leased(pool: &diesel_async::pooled_connection::bb8::Pool<AsyncPgConnection>, b: &str) -> QueryResult<()> {
    Ok(())
}

#[derive(LockKey)]
#[lock_key((23_405, "<b>"))]
struct Declared {
    b: i64,
}

fn computed(b: i64) {
    _ = lock_key!((23_405, "<b>"));
    _ = lock_key!(key = (23_405, "<b>"), derivation = "hashtext");
    _ = lock_key!((23_405, b));
}

fn main() {}
