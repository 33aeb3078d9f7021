#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct Bookings {
    conn: AsyncPgConnection,
}

impl Bookings {
    #[advisory_lock(key = "<tenant_id>", scope = "xact", conn = self.conn)]
    async fn book(&self, tenant_id: i64) -> QueryResult<()> {
        Ok(())
    }
}

fn main() {}
