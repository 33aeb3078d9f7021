#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

pub enum BookingError {
    Taken,
}

#[advisory_lock(key = "job")]
async fn run(conn: &mut AsyncPgConnection) -> Result<(), BookingError> {
    Err(BookingError::Taken)
}

fn main() {}
