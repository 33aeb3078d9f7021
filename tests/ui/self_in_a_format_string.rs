#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct Bookings {
    conn: AsyncPgConnection,
    prefix: String,
}

impl Bookings {
    #[advisory_lock(key = "<tenant_id>", conn = self.conn)]
    async fn book(&mut self, tenant_id: i64) -> QueryResult<()> {
        println!("{self:p}");
        Ok(())
    }
}

fn main() {}
