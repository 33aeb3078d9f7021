#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;

#[advisory_lease(key = "job", pool = pool)]
fn run(pool: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
