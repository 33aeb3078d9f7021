#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

fn key(id: i64) -> advisory_runtime::Key {
    lock_key!("account:<account>")
}

fn lock_key_without_a_pattern(id: i64) -> advisory_runtime::Key {
    lock_key!(id)
}

fn main() {}
