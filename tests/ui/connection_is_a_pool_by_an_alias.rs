#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};

type Db = Pool<AsyncPgConnection>;

#[advisory_lock(key = "tenant:<tenant_id>")]
async fn book(conn: &Db, tenant_id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "room:<room>", conn = state.db)]
async fn close(state: &State, room: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "guest:<guest>")]
async fn invite(conn: Db, guest: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "desk:<desk>")]
async fn sit(conn: &AsyncPgConnection, desk: i64) -> QueryResult<()> {
    Ok(())
}

struct State {
    db: Db,
}

fn main() {}
