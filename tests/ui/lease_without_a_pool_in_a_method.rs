#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;

struct Jobs;

impl Jobs {
    #[advisory_lock(key = "job", scope = "lease")]
    async fn run(&self) -> QueryResult<()> {
        Ok(())
    }
}

fn main() {}
