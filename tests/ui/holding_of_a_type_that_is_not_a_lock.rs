#![allow(unused)]
use advisory_runtime::Holding;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct Slot {
    room: i64,
}

async fn insert(_: &mut AsyncPgConnection, _: Holding<'_, Slot>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
