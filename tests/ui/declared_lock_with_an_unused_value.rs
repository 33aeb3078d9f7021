#![allow(unused)]
use advisory_runtime::LockKey;

#[derive(LockKey)]
#[lock_key("task:<id>", with(end = "\0"))]
struct TaskLock {
    id: i64,
}

fn main() {}
