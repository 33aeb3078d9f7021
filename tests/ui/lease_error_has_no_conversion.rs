#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

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
