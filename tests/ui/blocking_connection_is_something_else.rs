use advisory_runtime::advisory_lock;
use diesel::{PgConnection, QueryResult};

type Conn<'a> = &'a PgConnection;

struct Request {
    db: String,
}

#[advisory_lock(key = "report:<day>")]
fn by_reference(conn: &mut String, day: i64) -> QueryResult<usize> {
    Ok(conn.len())
}

#[advisory_lock(key = "shared:<day>")]
fn by_an_alias(conn: Conn<'_>, day: i64) -> QueryResult<i64> {
    let _ = conn;
    Ok(day)
}

#[advisory_lock(key = "field:<day>", conn = request.db)]
fn by_a_field(mut request: Request, day: i64) -> QueryResult<usize> {
    Ok(request.db.len())
}

#[advisory_lock(key = "expression:<day>", conn = day.to_string())]
fn by_an_expression(day: i64) -> QueryResult<usize> {
    Ok(conn.len())
}

fn main() {}
