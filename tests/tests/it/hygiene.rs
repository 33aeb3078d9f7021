//! The expansion takes no name from the user's function and adds no warning to it.
#![deny(warnings)]
#![forbid(unsafe_code)]

use crate::bookings::{committed, database, execute};
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

/// Every local of the expansion, as a parameter.
#[advisory_lock(key = "names:<key>:<keys>:<held>:<result>", scope = "xact")]
#[expect(clippy::too_many_arguments, reason = "that is the test")]
async fn names(
    conn: &mut AsyncPgConnection,
    key: i64,
    keys: i64,
    held: i64,
    result: i64,
    returns: i64,
    convert: i64,
    place: i64,
    error: i64,
) -> QueryResult<i64> {
    execute(conn, "SELECT 1").await?;
    Ok(key + keys + held + result + returns + convert + place + error)
}

/// Coercion, `?` and `return` mean in the body what they mean without the attribute.
#[advisory_lock(key = "job", name = "job", scope = "xact")]
async fn coerces(
    conn: &mut AsyncPgConnection,
    which: u8,
) -> Result<Box<dyn std::fmt::Debug + Send>, Box<dyn std::error::Error + Send + Sync>> {
    execute(conn, "SELECT 1").await?;
    if which == 0 {
        return Ok(Box::new("a"));
    }
    let number: u8 = "7".parse()?;
    Ok(Box::new(number))
}

/// A lock in a function that never ends normally still compiles without a warning.
#[advisory_lock(key = "job", name = "job", scope = "xact")]
async fn fails(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    execute(conn, "SELECT 1").await?;
    Err(diesel::result::Error::NotFound)
}

#[tokio::test]
async fn names_coercions_and_returns_are_the_users_own() {
    let db = database().await;
    let conn = &mut db.connect().await;
    assert_eq!(names(conn, 1, 2, 3, 4, 5, 6, 7, 8).await.unwrap(), 36);
    assert_eq!(format!("{:?}", coerces(conn, 0).await.unwrap()), "\"a\"");
    assert_eq!(format!("{:?}", coerces(conn, 1).await.unwrap()), "7");
    fails(conn).await.unwrap_err();
    assert_eq!(committed(&db, 7).await, 0);
}
