#![allow(unused, deprecated)]
use advisory_runtime::{advisory_lease, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "a", err = |error| error)]
async fn run(conn: &mut AsyncPgConnection) -> std::io::Result<()> {
    Ok(())
}

#[advisory_lock(key = "b", err = std::io::Error::other("locked"))]
async fn value(conn: &mut AsyncPgConnection) -> std::io::Result<()> {
    Ok(())
}

pub enum BookingError {
    Taken,
}

#[advisory_lock(key = "c")]
async fn error_has_no_conversion(conn: &mut AsyncPgConnection) -> Result<(), BookingError> {
    Err(BookingError::Taken)
}

#[advisory_lock(key = "d")]
async fn error_of_another_crate(conn: &mut AsyncPgConnection) -> std::io::Result<()> {
    Ok(())
}

enum AppError {
    Locked(advisory_runtime::Error),
}

impl From<advisory_runtime::Error> for AppError {
    fn from(error: advisory_runtime::Error) -> Self {
        Self::Locked(error)
    }
}

#[advisory_lease(key = "report:<month>", pool = pool)]
async fn report(pool: &Pool<AsyncPgConnection>, month: &str) -> Result<(), AppError> {
    Ok(())
}

fn main() {}
