//! A row of the monitor's statement.

use super::sql;
use crate::driver::Queries;
use diesel::QueryResult;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Oid, SmallInt, Text};
use std::time::Duration;

/// A lock and its backend, either of which can be missing.
#[derive(Clone, Debug, Default, diesel::QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
pub(crate) struct LockRow {
    #[diesel(sql_type = Nullable<Oid>)]
    pub(super) classid: Option<u32>,
    #[diesel(sql_type = Nullable<Oid>)]
    pub(super) objid: Option<u32>,
    #[diesel(sql_type = Nullable<SmallInt>)]
    pub(super) objsubid: Option<i16>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) mode: Option<String>,
    #[diesel(sql_type = Nullable<Bool>)]
    pub(super) granted: Option<bool>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) waited: Option<i64>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(super) pid: Option<i32>,
    #[diesel(sql_type = Nullable<Bool>)]
    pub(super) is_there: Option<bool>,
    #[diesel(sql_type = Nullable<Bool>)]
    pub(super) is_visible: Option<bool>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) started: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) user_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) application_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) state: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) query: Option<String>,
    #[diesel(sql_type = Nullable<Bool>)]
    pub(super) is_query_cut: Option<bool>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) client_addr: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) transaction_age: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) state_age: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) session_age: Option<i64>,
    #[diesel(sql_type = Nullable<Bool>)]
    pub(super) is_settled: Option<bool>,
    #[diesel(sql_type = Nullable<Bool>)]
    pub(super) is_pooled: Option<bool>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) waits_for: Option<String>,
    #[diesel(sql_type = Nullable<Array<Integer>>)]
    pub(super) blocked_by: Option<Vec<i32>>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) prepared: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) prepared_by: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) prepared_age: Option<i64>,
    #[diesel(sql_type = Text)]
    pub(super) database_name: String,
    #[diesel(sql_type = Text)]
    pub(super) role_name: String,
    #[diesel(sql_type = Integer)]
    pub(super) reader: i32,
    #[diesel(sql_type = Bool)]
    pub(super) sees_all: bool,
}

/// Converts an age. A negative one is zero.
pub(super) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Reads every lock of the database, with the backends that hold it or wait for it.
pub(super) async fn read<D: Queries>(conn: &mut D) -> QueryResult<Vec<LockRow>> {
    conn.load(diesel::sql_query(sql::LOCKS.as_str())).await
}
