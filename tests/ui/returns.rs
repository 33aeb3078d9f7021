use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

trait IntoResponse {}

impl IntoResponse for u8 {}

#[advisory_lock(key = "a")]
async fn number(conn: &mut AsyncPgConnection) -> usize {
    7
}

#[advisory_lock(key = "b")]
async fn nothing(conn: &mut AsyncPgConnection) {}

#[advisory_lock(key = "c")]
async fn option(conn: &mut AsyncPgConnection) -> Option<Vec<u8>> {
    None
}

#[advisory_lock(key = "d")]
async fn response(conn: &mut AsyncPgConnection) -> impl IntoResponse {
    7
}

#[advisory_lock(key = "e")]
async fn body_has_another_type(conn: &mut AsyncPgConnection) -> QueryResult<usize> {
    _ = conn;
    Ok("seven")
}

fn main() {}
