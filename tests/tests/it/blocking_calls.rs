//! A locked function of blocking Diesel that several tests call.

use advisory_runtime::advisory_lock;
use advisory_tests::blocking::book_unlocked;
use diesel::QueryResult;
use diesel::pg::PgConnection;

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
pub(crate) fn book(conn: &mut PgConnection, room: i64, guest: &str) -> QueryResult<bool> {
    book_unlocked(conn, room, guest)
}
