use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", pool = "ctx.pool")]
async fn run(ctx: &Context) -> QueryResult<()> {
    Ok(())
}

struct Context {
    pool: Pool<AsyncPgConnection>,
}

fn main() {}
