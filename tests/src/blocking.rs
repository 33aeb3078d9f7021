//! Helpers for a connection of blocking Diesel.

use crate::settings::SETTINGS;
use advisory_runtime::Error;
use advisory_runtime::blocking::LockGuard;
use diesel::pg::PgConnection;
use diesel::sql_types::{BigInt, Text};
use diesel::{QueryResult, RunQueryDsl};

/// Runs a statement.
pub fn execute(conn: &mut PgConnection, sql: &str) -> QueryResult<usize> {
    diesel::sql_query(sql).execute(conn)
}

/// Inserts a booking.
pub fn insert(conn: &mut PgConnection, room: i64, guest: &str) -> QueryResult<usize> {
    diesel::sql_query("INSERT INTO booking VALUES ($1, $2)")
        .bind::<BigInt, _>(room)
        .bind::<Text, _>(guest)
        .execute(conn)
}

/// The number that a query returns.
pub fn count(conn: &mut PgConnection, sql: &str) -> QueryResult<i64> {
    diesel::dsl::sql::<BigInt>(sql).get_result(conn)
}

/// The value of a setting in this session.
pub fn setting(conn: &mut PgConnection, name: &str) -> String {
    diesel::dsl::sql::<Text>(&format!("SELECT current_setting('{name}')"))
        .get_result(conn)
        .unwrap()
}

/// The settings that a bound changes.
pub fn settings(conn: &mut PgConnection) -> String {
    diesel::dsl::sql::<Text>(SETTINGS).get_result(conn).unwrap()
}

/// The process id of the backend that serves the connection.
pub fn pid_of(conn: &mut PgConnection) -> i32 {
    let pid = count(conn, "SELECT pg_backend_pid()::int8").unwrap();
    i32::try_from(pid).unwrap()
}

/// How many advisory locks this connection's session holds.
pub fn held_by(conn: &mut PgConnection) -> QueryResult<i64> {
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()";
    count(conn, locks)
}

/// Counts the bookings of a room.
pub fn bookings(conn: &mut PgConnection, room: i64) -> QueryResult<i64> {
    let rows = format!("SELECT count(*) FROM booking WHERE room = {room}");
    count(conn, &rows)
}

/// Books the room unless it is taken, without a lock.
pub fn book_unlocked(conn: &mut PgConnection, room: i64, guest: &str) -> QueryResult<bool> {
    if bookings(conn, room)? > 0 {
        return Ok(false);
    }
    insert(conn, room, guest)?;
    Ok(true)
}

/// Commits what a guard holds.
pub fn finish(held: LockGuard<'_, PgConnection>) {
    held.finish(Ok::<_, Error>(())).unwrap();
}
