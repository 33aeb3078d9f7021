use advisory_runtime::advisory_lease;
use advisory_runtime::lease::Error;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "a", pool = pool, keep = "24h")]
async fn without_its_name(pool: &Pool<AsyncPgConnection>, conn: &mut AsyncPgConnection) -> Result<(), Error> {
    lease.complete(conn).await
}

fn main() {}
