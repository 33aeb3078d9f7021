use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel::connection::SimpleConnection;

struct Context;

#[advisory_lock(key = "job", pool = ctx)]
fn run(ctx: &Context) -> QueryResult<()> {
    conn.batch_execute("SELECT 1")
}

fn main() {}
