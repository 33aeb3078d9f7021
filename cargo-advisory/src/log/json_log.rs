//! `jsonlog`, of PostgreSQL 15 and later: one JSON object per line.

use serde_json::Value;

use super::record::{Record, foreign, is_error};
use super::time::Time;

/// Parses a line; `None` if it is not a record of the server.
pub(super) fn record(line: &str) -> Option<Record> {
    let value: Value = serde_json::from_str(line).ok()?;
    let some = |member: &str| value.get(member).and_then(Value::as_str).map(str::to_owned);
    let text = |member: &str| some(member).unwrap_or_default();
    let severity = some("error_severity")?;
    let pid = value.get("pid").and_then(Value::as_i64);
    Some(Record {
        time: Time::find(&text("timestamp")),
        pid: pid.and_then(|pid| i32::try_from(pid).ok()),
        user: some("user"),
        database: some("dbname"),
        application: some("application_name"),
        is_error: is_error(&severity),
        foreign_tag: foreign(&severity),
        message: text("message"),
        detail: text("detail"),
        statement: text("statement"),
    })
}
