//! Settings of a session, as the server shows them.

use diesel::dsl::sql;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

/// The value of a setting in this session.
pub async fn setting(conn: &mut AsyncPgConnection, name: &str) -> String {
    sql::<Text>(&format!("SELECT current_setting('{name}')"))
        .get_result(conn)
        .await
        .unwrap()
}

/// The settings that a bound changes; `transaction_timeout` exists since PostgreSQL 17.
pub(crate) const SETTINGS: &str = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings \
     WHERE name LIKE '%timeout%' OR name LIKE 'client_connection_check%'";

/// The settings that a bound changes.
pub async fn settings(conn: &mut AsyncPgConnection) -> String {
    sql::<Text>(SETTINGS).get_result(conn).await.unwrap()
}

/// The bound on an idle transaction in milliseconds; as text it has changing units, `59s` and
/// `1min`.
pub async fn idle_bound(conn: &mut AsyncPgConnection) -> i64 {
    let bound = "SELECT CAST(setting AS pg_catalog.int8) FROM pg_catalog.pg_settings \
                 WHERE name = 'idle_in_transaction_session_timeout'";
    sql::<BigInt>(bound).get_result(conn).await.unwrap()
}
