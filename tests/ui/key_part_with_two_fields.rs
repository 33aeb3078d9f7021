#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(KeyPart)]
struct Tenant {
    region: String,
    number: i64,
}

fn main() {}
