#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;

struct Jobs;

impl Jobs {
    #[advisory_lease(key = "job")]
    async fn run(&self) -> QueryResult<()> {
        Ok(())
    }
}

fn main() {}
