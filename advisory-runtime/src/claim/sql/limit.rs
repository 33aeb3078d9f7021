//! The statements of claims with a limit for each value of a column.
//!
//! A count of running rows is exact only if its snapshot was taken while no other session could claim a row of the value. So one
//! statement, the reservation, locks values by advisory locks, which last until the commit, and the next statement counts and claims.
//! The reservation passes over values that another session has locked. A setting of the transaction tells the claim which values are
//! locked, so the claim can be sent before the reservation is answered: without the setting it claims nothing.
//!
//! A reservation reads the first rows in order. If there are more, and all of these have values at their limits, it reads the first
//! row of each value, and not the rows behind it.

use super::text_cache::{Form, cached};
use super::{
    Names, Statement, Wanted, joined, literal, now_of_until, only, order_columns, pending, quoted,
    text,
};
use crate::claim::table::{Claim, MaybePer};
use crate::sql::micros;
use diesel::Column;

/// Precedes a reservation outside of a transaction. The claim needs a snapshot of its own.
pub(in crate::claim) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";
pub(in crate::claim) const COMMIT: &str = "COMMIT";
pub(in crate::claim) const ROLLBACK: &str = "ROLLBACK";

/// The setting of the transaction with the locked values, as a literal.
const SETTING: &str = "'advisory.claim'";

/// How many rows a reservation reads in order.
const NEAR: u32 = 64;

impl<'a, T: Claim> Statement<'a, T, ()> {
    /// Locks the values of the first rows that can be claimed, at most `width`, but none of `passed_over`, an array in SQL.
    pub(in crate::claim) fn reserve(passed_over: &'a str, width: u32, wanted: Wanted<'a>) -> Self {
        let sql = cached::<T>(Form::Reserve(width), || {
            Per::of::<T>().reservation::<T>(width)
        });
        Self {
            condition: wanted.condition,
            ..Self::new(sql, (), passed_over.into())
        }
    }

    /// Claims the first rows of the locked values, as many as their limits allow.
    pub(in crate::claim) fn next_of_reserved(
        worker: &'a str,
        limit: u32,
        wanted: Wanted<'a>,
    ) -> Self {
        let sql = cached::<T>(Form::NextOfReserved(limit), || {
            let per = Per::of::<T>();
            let rows = per.first_rows::<T>(limit);
            per.names.taken::<T>(&rows)
        });
        Self {
            condition: wanted.condition,
            changes: wanted.changes,
            ..Self::new(sql, (), text(worker))
        }
    }
}

impl<'a, T: Claim, K> Statement<'a, T, K> {
    /// Locks the value of the row of a key. It waits for the lock.
    pub(in crate::claim) fn reserve_key(key: K) -> Self {
        let sql = cached::<T>(Form::ReserveKey, || {
            let per = Per::of::<T>();
            let lock = per.lock("pg_catalog.pg_advisory_xact_lock", "advisory_value.per");
            format!(
                "WITH advisory_locked AS MATERIALIZED (SELECT advisory_value.per, {lock} AS locked \
                 FROM (SELECT {} AS per FROM {} WHERE {} OFFSET 0) AS advisory_value) {}",
                per.column,
                per.names.table,
                per.names.is_key::<T>("\0k"),
                answer("SELECT per FROM advisory_locked", "false")
            )
        });
        Self::new(sql, key, "".into())
    }

    /// Claims the row of a key, if its value is locked and below its limit.
    pub(in crate::claim) fn reserved_key(worker: &'a str, key: K) -> Self {
        let sql = cached::<T>(Form::ReservedKey, || {
            let per = Per::of::<T>();
            let rows = format!(
                "WITH {}, advisory_claim AS MATERIALIZED (SELECT {} FROM {} WHERE {} AND {} AND EXISTS (SELECT FROM advisory_room \
             WHERE advisory_room.per OPERATOR(pg_catalog.=) {} AND advisory_room.room OPERATOR(pg_catalog.>) 0) FOR NO KEY UPDATE",
                per.room::<T>(),
                per.names.locked_columns::<T>(),
                per.names.table,
                per.names.is_key::<T>("\0k"),
                per.names.unclaimed::<T>(),
                per.column,
            );
            per.names.taken::<T>(&rows)
        });
        Self::new(sql, key, text(worker))
    }
}

/// The column with the values.
struct Per {
    names: Names,
    /// `"schema"."table"."column"`.
    column: String,
    /// Its type in SQL.
    sql_type: &'static str,
    limit: u32,
}

impl Per {
    fn of<T: Claim>() -> Self {
        let names = Names::of::<T>();
        let (column, sql_type) = T::Per::COLUMN.unwrap_or(("", "pg_catalog.text"));
        Self {
            column: names.column(column),
            names,
            sql_type,
            limit: T::LIMIT.max(1),
        }
    }

    /// A condition on a row of the table: it is of this value. With it and the value in front of the order, only the index on the value
    /// and the order gives the first rows without a sort. An equation would leave the order to the index for all values, in which
    /// the server expects a row of each value soon, and reads the whole backlog of another one.
    fn is_of(&self, value: &str) -> String {
        let column = &self.column;
        format!(
            "{column} OPERATOR(pg_catalog.>=) {value} AND {column} OPERATOR(pg_catalog.<=) {value}"
        )
    }

    /// A call with the key of a value's lock: a hash of the value, seeded with the table.
    fn lock(&self, function: &str, value: &str) -> String {
        format!(
            "{function}(pg_catalog.hashtextextended(CAST({value} AS pg_catalog.text),\
             CAST(CAST(CAST({} AS pg_catalog.regclass) AS pg_catalog.oid) AS pg_catalog.int8)))",
            literal(&self.names.table)
        )
    }

    /// The rows of a value that somebody has claimed, by the literal condition of the index.
    fn claimed<T: Claim>(&self, value: &str) -> String {
        let mut conditions = vec![format!("{} OPERATOR(pg_catalog.=) {value}", self.column)];
        conditions.extend(self.names.pending::<T>());
        conditions.push(format!("{} IS NOT NULL", self.names.by));
        format!(
            "FROM {} WHERE {} AND {}",
            self.names.table,
            conditions.join(" AND "),
            self.names.until
        )
    }

    /// A condition: fewer rows of the value are running than may, by the snapshot, which can be old.
    fn has_room<T: Claim>(&self, value: &str) -> String {
        format!(
            "(SELECT pg_catalog.count(*) {} OPERATOR(pg_catalog.>) {}) OPERATOR(pg_catalog.<) {}",
            self.claimed::<T>(value),
            now_of_until::<T>(),
            self.limit
        )
    }

    /// A `WITH` of how many rows of each locked value may be claimed.
    ///
    /// A claim that has expired may be renewed at this moment, by a statement that began before its expiry. Then its row is locked, or
    /// not expired any more as soon as it can be locked, and it counts as running. A row that is locked here is not renewed any more.
    fn room<T: Claim>(&self) -> String {
        let claimed = self.claimed::<T>("advisory_value.per");
        let setting = format!("pg_catalog.current_setting({SETTING},true)");
        format!(
            "advisory_room AS MATERIALIZED (SELECT advisory_value.per, \
             ({} OPERATOR(pg_catalog.-) (SELECT pg_catalog.count(*) {claimed} IS NOT NULL)) OPERATOR(pg_catalog.+) \
             (SELECT pg_catalog.count(*) FROM (SELECT {claimed} OPERATOR(pg_catalog.<=) {} FOR NO KEY UPDATE SKIP LOCKED) \
             AS advisory_expired) AS room FROM (SELECT DISTINCT per FROM pg_catalog.unnest(\
             CASE WHEN {setting} OPERATOR(pg_catalog.<>) '' THEN CAST({setting} AS {}[]) END) AS per) AS advisory_value)",
            self.limit,
            now_of_until::<T>(),
            self.sql_type
        )
    }

    /// The conditions of a row that can be claimed, and the caller's.
    fn claimable<T: Claim>(&self) -> String {
        format!(
            "{}{}\0w",
            self.names.unclaimed::<T>(),
            self.names.due::<T>()
        )
    }

    fn order<T: Claim>(&self) -> Vec<[String; 2]> {
        order_columns::<T>(|column| self.names.column(column))
    }

    /// Locks the first rows of the locked values, at most `limit` and no more than each value has room for.
    fn first_rows<T: Claim>(&self, limit: u32) -> String {
        let order = self.order::<T>();
        format!(
            "WITH {}, advisory_claim AS MATERIALIZED (SELECT advisory_row.* FROM advisory_room CROSS JOIN LATERAL \
             (SELECT {}, {} FROM {} WHERE {} AND {} ORDER BY {}, {} \
             LIMIT GREATEST(LEAST(advisory_room.room,{limit}),0) FOR NO KEY UPDATE SKIP LOCKED) AS advisory_row \
             ORDER BY {} LIMIT {limit}",
            self.room::<T>(),
            named(&order),
            self.names.locked_columns::<T>(),
            self.names.table,
            self.is_of("advisory_room.per"),
            self.claimable::<T>(),
            self.column,
            joined(&order),
            joined(&by_name(&order)),
        )
    }

    fn reservation<T: Claim>(&self, width: u32) -> String {
        let (table, column) = (&self.names.table, &self.column);
        let (order, claimable) = (self.order::<T>(), self.claimable::<T>());
        let (first, by_name) = (joined(&order), joined(&by_name(&order)));
        let is_passed_over = |value: &str| {
            format!(
                "{value} OPERATOR(pg_catalog.=) ANY (CAST(\0b AS {}[]))",
                self.sql_type
            )
        };
        let is_locked = self.lock("pg_catalog.pg_try_advisory_xact_lock", "advisory_value.per");
        // A `CASE`, because the server would call the function first, which is cheaper than the count.
        let near = format!(
            "advisory_row AS MATERIALIZED (SELECT {column} AS per FROM {table} WHERE {claimable} ORDER BY {first} LIMIT {NEAR}), \
             advisory_near AS MATERIALIZED (SELECT advisory_numbered.per, pg_catalog.min(advisory_numbered.nth) AS nth FROM \
             (SELECT advisory_row.per, pg_catalog.row_number() OVER () AS nth FROM advisory_row) AS advisory_numbered \
             WHERE NOT {} GROUP BY advisory_numbered.per ORDER BY nth), \
             advisory_first AS MATERIALIZED (SELECT advisory_value.per FROM advisory_near AS advisory_value \
             WHERE CASE WHEN {} THEN {is_locked} END LIMIT {width})",
            is_passed_over("advisory_numbered.per"),
            self.has_room::<T>("advisory_value.per"),
        );
        let value = |condition: String| {
            let mut conditions = vec![condition];
            conditions.extend(self.names.pending::<T>());
            format!(
                "SELECT {column} FROM {table} WHERE {} ORDER BY {column} LIMIT 1",
                conditions.join(" AND ")
            )
        };
        let values = format!(
            "advisory_values(per) AS (({}) UNION ALL SELECT ({}) FROM advisory_values WHERE advisory_values.per IS NOT NULL)",
            value(format!(
                "(SELECT pg_catalog.count(*) FROM advisory_first) OPERATOR(pg_catalog.<) {width} \
                 AND (SELECT pg_catalog.count(*) FROM advisory_row) OPERATOR(pg_catalog.=) {NEAR}"
            )),
            value(format!(
                "{column} OPERATOR(pg_catalog.>) advisory_values.per"
            )),
        );
        let far = format!(
            "advisory_far AS MATERIALIZED (SELECT advisory_values.per FROM advisory_values CROSS JOIN LATERAL \
             (SELECT {} FROM {table} WHERE {} AND {claimable} ORDER BY {column}, {first} LIMIT 1) AS advisory_row WHERE {} AND NOT {} ORDER BY {by_name}), \
             advisory_second AS MATERIALIZED (SELECT advisory_value.per FROM advisory_far AS advisory_value \
             WHERE {is_locked} LIMIT {width})",
            named(&order),
            self.is_of("advisory_values.per"),
            self.has_room::<T>("advisory_values.per"),
            is_passed_over("advisory_values.per"),
        );
        let locked = "SELECT per FROM advisory_first UNION ALL SELECT per FROM advisory_second";
        let is_busy = format!(
            "NOT EXISTS ({locked}) AND (EXISTS (SELECT FROM advisory_far) OR EXISTS (SELECT FROM advisory_near WHERE {}))",
            self.has_room::<T>("advisory_near.per")
        );
        format!(
            "WITH RECURSIVE {near}, {values}, {far} {}",
            answer(locked, &is_busy)
        )
    }
}

/// The answer of a reservation: the locked values, whether others have locked all values that have room, and whether the transaction's
/// snapshot is too old to count by.
fn answer(values: &str, is_busy: &str) -> String {
    let is_stale = "pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) \
         ANY (CAST('{repeatable read,serializable}' AS pg_catalog.text[]))";
    let waited = micros(
        "pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp()",
    );
    format!(
        "SELECT pg_catalog.set_config({SETTING},CASE WHEN {is_stale} THEN '{{}}' ELSE COALESCE((SELECT \
         CAST(pg_catalog.array_agg(advisory_value.per) AS pg_catalog.text) FROM ({values}) AS advisory_value),'{{}}') END,true) AS locked, \
         {is_busy} AS is_busy, {is_stale} AS is_stale, {waited} AS waited"
    )
}

/// The columns of the order under names of their own.
fn named(order: &[[String; 2]]) -> String {
    let columns = order.iter().enumerate();
    let columns = columns.map(|(nth, [column, _])| format!("{column} AS order_{nth}"));
    columns.collect::<Vec<_>>().join(", ")
}

/// The order by these names.
fn by_name(order: &[[String; 2]]) -> Vec<[String; 2]> {
    let columns = order.iter().enumerate();
    let columns = columns.map(|(nth, [_, direction])| [format!("order_{nth}"), direction.clone()]);
    columns.collect()
}

/// What the indexes for these statements contain.
pub(in crate::claim) fn indexes<T: Claim>() -> Vec<String> {
    let Some((column, _)) = T::Per::COLUMN else {
        return Vec::new();
    };
    let order = joined(&order_columns::<T>(quoted));
    indexes_of(column, &order, pending::<T>(quoted), T::LockedBy::NAME).into()
}

/// The rows of a value in order, and the claimed rows of a value.
pub(super) fn indexes_of(
    column: &str,
    order: &str,
    pending: Vec<String>,
    locked_by: &str,
) -> [String; 2] {
    let column = quoted(column);
    let rows = format!("({column}, {order}){}", only(&pending));
    let mut conditions = pending;
    conditions.push(format!("{} IS NOT NULL", quoted(locked_by)));
    [rows, format!("({column}){}", only(&conditions))]
}
