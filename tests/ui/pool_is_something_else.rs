use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::SimpleAsyncConnection;

struct Context;

#[advisory_lock(key = "job", pool = ctx)]
async fn run(ctx: &Context) -> QueryResult<()> {
    conn.batch_execute("SELECT 1").await
}

fn main() {}
