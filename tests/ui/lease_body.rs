use advisory_runtime::{advisory_lease, lease};
use diesel::QueryResult;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl as _};

struct Jobs {
    pool: Pool<AsyncPgConnection>,
}

#[advisory_lease(key = "a", pool = pool)]
async fn connection(pool: &Pool<AsyncPgConnection>) -> QueryResult<usize> {
    diesel::sql_query("UPDATE").execute(conn).await
}

impl Jobs {
    #[advisory_lease(key = "b", pool = self.pool)]
    async fn connection_in_a_method(&self) -> QueryResult<usize> {
        let updated = diesel::sql_query("UPDATE").execute(conn).await?;
        Ok(updated)
    }
}

#[advisory_lease(key = "d", pool = pool, handle = lease)]
async fn completed_without_keep(pool: &Pool<AsyncPgConnection>, conn: &mut AsyncPgConnection) -> Result<(), lease::Error> {
    lease.fence(conn).await?;
    lease.complete(conn).await
}

fn main() {}
