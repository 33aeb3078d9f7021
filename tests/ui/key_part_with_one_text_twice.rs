#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(KeyPart)]
enum Kind {
    #[key_part("Refund")]
    Payment,
    Refund,
}

fn main() {}
