#![allow(unused, deprecated)]
use advisory_runtime::{advisory_lease, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "room:<room>", handle = room)]
async fn run(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", handle = "lock")]
async fn handle_is_quoted(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, handle = pool)]
async fn handle_of_a_lease_has_a_parameters_name(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

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
