#![deny(warnings)]
#![allow(dead_code)]
use advisory_runtime::advisory_lock;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::{PgConnection, QueryResult};

#[advisory_lock(key = "job", pool = pool)]
fn run(pool: &Pool<ConnectionManager<PgConnection>>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
