#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::PgConnection;
use diesel::r2d2::{ConnectionManager, Pool};

#[advisory_lock(key = "job", conn = pool.get())]
fn run(pool: &Pool<ConnectionManager<PgConnection>>) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

fn main() {}
