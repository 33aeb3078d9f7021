#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;

#[advisory_lock(key = "job", scope = "lease", pool = pool)]
fn run(pool: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
