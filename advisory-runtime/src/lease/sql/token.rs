//! The number that a grant draws: its fencing token, which is larger than that of any earlier grant.
//!
//! **Why a later grant has the larger token.** Each grant locks its key until its transaction ends (a take-over, which is of a key with a
//! row, locks that row) before it draws from the sequence, so two grants of one key draw one after the other. Without the lock, a session could draw a number, be stopped, and
//! insert it after a larger one.
//!
//! A sequence can be set back, and logical replication copies rows without it. So a token is always larger than the one in the key's
//! row. If the sequence's number is not, the sequence is moved past the tokens of all rows, and rows above it are not removed.
//!
//! A standby that is promoted can lack the last grants, and the sequence with them. But a promotion gives the server a new timeline, so
//! the bits of a token from the 40th on say in which timeline it was granted: their last twelve are those of the timeline. The first
//! grant of a timeline moves the sequence to the next such number. `pg_upgrade` starts with timeline 1 again and keeps the sequence,
//! which therefore goes up then too.

/// The time left in the answer to a grant whose number was not above the token in the key's row.
pub(in crate::lease) const BEHIND: i64 = -1;

/// Reads the server's timeline, which fails where there is none.
pub(in crate::lease) fn timeline() -> String {
    format!("SELECT {TIMELINE}")
}

/// The control file has it too, but only after the first checkpoint of a timeline.
const TIMELINE: &str = "CAST(CAST('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(\
     pg_catalog.pg_current_wal_lsn()),1,8) AS pg_catalog.bit(32)) AS pg_catalog.int8)";

/// By how much the timeline of a number is behind the server's; zero in the usual case.
fn behind_by(number: &str) -> String {
    format!(
        "({TIMELINE} OPERATOR(pg_catalog.-) ({number} OPERATOR(pg_catalog.>>) 40) OPERATOR(pg_catalog.&) CAST(4095 AS pg_catalog.int8))"
    )
}

/// The number, or, if it is not of the server's timeline, the first one above it that is. The timeline is read once: reading it is dear.
fn in_timeline(number: &str) -> String {
    let behind = behind_by(number);
    format!(
        "GREATEST({number},((({number} OPERATOR(pg_catalog.>>) 40) OPERATOR(pg_catalog.+) {behind}) OPERATOR(pg_catalog.<<) 40) \
         OPERATOR(pg_catalog.+) CAST(1 AS pg_catalog.int8))"
    )
}

/// Draws a number, and replaces it if it is not of the server's timeline. `CASE` guarantees that it is drawn before it is read again.
pub(super) fn draw(sequence: &str, has_timeline: bool) -> String {
    let next = format!("pg_catalog.nextval('{sequence}')");
    if !has_timeline {
        return next;
    }
    let drawn = in_timeline(&format!("pg_catalog.currval('{sequence}')"));
    format!("CASE WHEN {next} IS NOT NULL THEN {drawn} END")
}

/// -1 if the number that the grant has drawn was not above the row's token, or not of the server's timeline; otherwise zero.
pub(super) fn is_behind(sequence: &str) -> String {
    format!(
        "CASE WHEN token OPERATOR(pg_catalog.<>) pg_catalog.currval('{sequence}') THEN CAST({BEHIND} AS pg_catalog.int8) \
         ELSE CAST(0 AS pg_catalog.int8) END"
    )
}

/// Moves the sequence to the largest token, or to the first number of the server's timeline above it.
///
/// The session that draws a number also writes the table, so the lock on the table keeps numbers from being drawn between the readings and
/// `setval`, which could set the sequence back.
pub(super) fn move_sequence(table: &str, sequence: &str, has_timeline: bool) -> String {
    let number = if has_timeline {
        in_timeline("largest")
    } else {
        "largest".to_owned()
    };
    format!(
        "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;SELECT pg_catalog.setval('{sequence}',{number}) FROM (SELECT \
         GREATEST(pg_catalog.pg_sequence_last_value('{sequence}'),pg_catalog.max(token)) AS largest FROM {table}) AS read"
    )
}
