#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

fn key(id: i64) -> advisory_runtime::Key {
    lock_key!(id)
}

fn main() {}
