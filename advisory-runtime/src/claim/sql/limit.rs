//! The statements of claims with a limit for each value of a column.
//!
//! A count of running rows is exact only if its snapshot was taken while no other session could
//! claim a row of the value. So one statement, the reservation, locks values by advisory locks,
//! which last until the commit, and the next statement counts and claims. The reservation passes
//! over values that another session has locked. A setting of the transaction tells the claim which
//! values are locked, so the claim can be sent before the reservation is answered: without the
//! setting it claims nothing.
//!
//! These statements and the indexes represent a value by its hash, a number, which PostgreSQL
//! computes for any type with equality, NULL included. Two values with one hash would share a
//! limit. A reservation reads the first rows in order and, if their values are at their limits, the
//! first row of some other values. If it locks none, the next reservation reads more of both.

use super::fragments::{Claimable, Fragments};
use crate::sql::quoted;

/// Precedes a reservation outside of a transaction. The claim needs a snapshot of its own.
pub(in crate::claim) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";
pub(in crate::claim) const COMMIT: &str = "COMMIT";
pub(in crate::claim) const ROLLBACK: &str = "ROLLBACK";

/// The number of rows that the first reservation reads in order.
pub(in crate::claim) const NEAR: u32 = 64;
/// The number of other values that it reads, if the values of these rows are at their limits.
const FAR: u32 = 16;
/// The number of rows in order that cost the server as much as the first row of one value.
const ROWS_A_VALUE: u32 = 16;

const IS_STALE: &str = "current_setting('transaction_isolation') \
     = ANY (CAST('{repeatable read,serializable}' AS text[]))";
/// The hash of the value, by the equality of its type.
const VALUE: &str = "hash_record_extended(ROW({per}), 0)";
/// The key does not contain the table, which can be reached by several names: its own, a view, a
/// partition and its parent. The hash is hashed again, because users may lock the hash itself by
/// `pg_advisory_lock(hashtextextended(…, 0))`.
const LOCK_KEY: &str = "hashint8extended(advisory_value.value, 0)";
const IS_WANTED: &str = "NOT (advisory_value.value = ANY (CAST(:passed_over AS int8[])))";
/// The value is below its limit, by the snapshot, which can be old.
const HAS_ROOM: &str = "(SELECT count(*) FROM {table} WHERE {is_claimed} AND {locked_until} > {clock}) < {value_limit}";
/// An `= ANY` makes the server use the index on the value and the order, because only that index
/// returns the first rows without a sort if the value precedes the order. For an `=` the server may
/// use the index on the order alone, and then read the whole backlog of another value.
const IS_OF_VALUE: &str = "{value} = ANY (ARRAY[advisory_value.value])";

impl Fragments<'_> {
    /// Adds the fragments that depend on the column `per`.
    pub(super) fn add_limit(&mut self, which: Claimable) {
        let row = self.row;
        let column = |name: &str| format!("{}.{}", row.table, quoted(name));
        self.add("per", column(row.per.unwrap_or_default()));
        self.add("value", VALUE);
        self.add("value_limit", row.limit.to_string());
        let order = row.order_by(column);
        let columns = order.iter().enumerate();
        let columns = columns.map(|(nth, [column, _])| format!("{column} AS order_{nth}"));
        self.add("order_columns", columns.collect::<Vec<_>>().join(", "));
        let names = order.iter().enumerate();
        let names = names.map(|(nth, [_, direction])| format!("order_{nth}{direction}"));
        self.add("order_names", names.collect::<Vec<_>>().join(", "));
        self.add("is_claimable", self.is_claimable(which));
        let pending = row.pending().map(|is| format!(" AND {is}"));
        self.add("and_pending", pending.collect::<String>());
        // It contains the condition of the index literally.
        self.add(
            "is_claimed",
            "{value} = advisory_value.value{and_pending} AND {locked_by} IS NOT NULL",
        );
        self.add("has_room", HAS_ROOM);
        self.add("lock_key", LOCK_KEY);
        self.add("is_stale", IS_STALE);
        self.add("is_of_value", IS_OF_VALUE);
        self.add("room", include_str!("room.sql"));
        self.add("reserved", include_str!("reserved.sql"));
    }

    /// Adds the fragments of a reservation of at most `width` values.
    pub(super) fn add_reserve(&mut self, width: u32, reach: u32) {
        self.add("width", width.to_string());
        self.add("reach", reach.to_string());
        let far = (reach / ROWS_A_VALUE).max(FAR).max(width);
        self.add("far", far.to_string());
        self.add("is_wanted", IS_WANTED);
        for (name, after) in [
            ("first_value", ":start"),
            ("next_value", "advisory_circle.value"),
        ] {
            let next = include_str!("next_value.sql").replace("{after}", after);
            self.add(name, next);
        }
    }
}
