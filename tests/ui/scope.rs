#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "job:<id>", scope = "lease", ttl = "60s", keep = "24h", on_done = Ok(()), pool = pool)]
async fn run(pool: &Pool<AsyncPgConnection>, id: i64) -> QueryResult<()> {
    Ok(())
}

struct Jobs {
    db: Pool<AsyncPgConnection>,
}

impl Jobs {
    #[advisory_lock(key = "job:<id>", scope = "lease", mode = "exclusive", max_hold = "5m", conn = self.db.get().await?)]
    async fn run(&self, id: i64) -> Result<bool, diesel::result::Error> {
        Ok(id > 0)
    }
}

#[advisory_lock(key = "job", scope = "transaction")]
async fn scope_is_unknown(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", scope = xact)]
async fn scope_without_quotes(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
