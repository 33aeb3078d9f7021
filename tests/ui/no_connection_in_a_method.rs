#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};

struct Bookings {
    db: Pool<AsyncPgConnection>,
}

impl Bookings {
    #[advisory_lock(key = "tenant:<tenant_id>")]
    async fn book(&self, tenant_id: i64) -> QueryResult<()> {
        let mut db = self.db.get().await.unwrap();
        Ok(())
    }

    #[advisory_lock(key = "room:<room>")]
    async fn close(&self, room: i64) -> QueryResult<()> {
        Ok(())
    }
}

fn main() {}
