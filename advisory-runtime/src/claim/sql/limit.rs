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

use super::fragments::{Claimable, Fragments, order_columns, order_of, pending};
use super::statement::{Statement, Value, of_claims};
use super::text_cache::{Form, cached};
use super::{Wanted, quoted, table};
use crate::claim::optional_column::MaybePer;
use crate::claim::table::Claim;
use crate::random::random;

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
const HAS_ROOM: &str =
    "(SELECT count(*) FROM {table} WHERE {is_claimed} AND {until} > {clock}) < {value_limit}";
/// An `= ANY` makes the server use the index on the value and the order, because only that index
/// returns the first rows without a sort if the value precedes the order. For an `=` the server may
/// use the index on the order alone, and then read the whole backlog of another value.
const IS_OF_VALUE: &str = "{value} = ANY (ARRAY[advisory_value.value])";

impl<'a, T: Claim> Statement<'a, T, ()> {
    /// Locks the values of the first rows that can be claimed, at most `width`, but none of
    /// `passed_over`, an array in SQL. It reads the first `reach` rows, or begins with any value.
    pub(in crate::claim) fn reserve(
        passed_over: &'a str,
        width: u32,
        reach: u32,
        wanted: Wanted<'a>,
    ) -> Self {
        let is_fresh = wanted.is_fresh;
        let form = Form::Reserve {
            width,
            reach,
            is_fresh,
        };
        let text = cached::<T>(form, || {
            let mut fragments = Fragments::of_limit::<T>(Claimable::first(is_fresh));
            fragments.add("width", width.to_string());
            fragments.add("reach", reach.to_string());
            let far = (reach / ROWS_A_VALUE).max(FAR).max(width);
            fragments.add("far", far.to_string());
            fragments.add("is_wanted", IS_WANTED);
            for (name, after) in [
                ("first_value", ":start"),
                ("next_value", "advisory_circle.value"),
            ] {
                let next = include_str!("next_value.sql").replace("{after}", after);
                fragments.add(name, next);
            }
            fragments.fill(include_str!("reserve.sql"))
        });
        Self::new(text, ())
            .with("passed_over", Value::Text(passed_over.into()))
            .with("start", Value::Number(random().cast_signed()))
            .wanted(wanted)
    }

    /// Claims the first rows of the locked values, as many as their limits allow.
    pub(in crate::claim) fn next_of_reserved(
        worker: &'a str,
        limit: u32,
        wanted: Wanted<'a>,
    ) -> Self {
        let is_fresh = wanted.is_fresh;
        let text = cached::<T>(Form::NextOfReserved { limit, is_fresh }, || {
            let mut fragments = Fragments::of_limit::<T>(Claimable::first(is_fresh));
            fragments.add("limit", limit.to_string());
            fragments.add("rows", include_str!("first_of_reserved.sql"));
            fragments.claim_many::<T>()
        });
        let holder = Value::Text(of_claims::<T>(worker));
        Self::new(text, ()).with("holder", holder).wanted(wanted)
    }
}

impl<'a, T: Claim, K> Statement<'a, T, K> {
    /// Locks the value of the row with a key, and waits for the lock.
    pub(in crate::claim) fn reserve_key(key: K) -> Self {
        let text = cached::<T>(Form::ReserveKey, || {
            Fragments::of_limit::<T>(Claimable::ByKey).fill(include_str!("reserve_key.sql"))
        });
        Self::new(text, key)
    }

    /// Claims the row with a key, if its value is locked and below its limit.
    pub(in crate::claim) fn reserved_key(worker: &'a str, key: K, wanted: Wanted<'a>) -> Self {
        let text = cached::<T>(Form::ReservedKey, || {
            let mut fragments = Fragments::of_limit::<T>(Claimable::ByKey);
            fragments.add("rows", include_str!("key_of_reserved.sql"));
            fragments.claim_many::<T>()
        });
        let holder = Value::Text(of_claims::<T>(worker));
        Self::new(text, key).with("holder", holder).wanted(wanted)
    }
}

impl Fragments {
    /// Returns the fragments of the table and of the column `per`.
    fn of_limit<T: Claim>(which: Claimable) -> Self {
        let mut fragments = Self::of::<T>();
        let table = table::<T>();
        let column = T::Per::COLUMN.unwrap_or_default();
        fragments.add("per", format!("{table}.{}", quoted(column)));
        fragments.add("value", VALUE);
        fragments.add("value_limit", T::LIMIT.max(1).to_string());
        let order = order_columns::<T>(|column| format!("{table}.{}", quoted(column)));
        fragments.add("order_columns", named(&order));
        fragments.add("order_names", order_of(&by_name(&order)));
        fragments.add("is_claimable", Self::is_claimable::<T>(which));
        let pending = pending::<T>().map(|is| format!(" AND {is}"));
        fragments.add("and_pending", pending.collect::<String>());
        // It contains the condition of the index literally.
        fragments.add(
            "is_claimed",
            "{value} = advisory_value.value{and_pending} AND {by} IS NOT NULL",
        );
        fragments.add("has_room", HAS_ROOM);
        fragments.add("lock_key", LOCK_KEY);
        fragments.add("is_stale", IS_STALE);
        fragments.add("is_of_value", IS_OF_VALUE);
        fragments.add("room", include_str!("room.sql"));
        fragments.add("reserved", include_str!("reserved.sql"));
        fragments
    }
}

/// Returns the columns of the order with aliases.
fn named(order: &[[String; 2]]) -> String {
    let columns = order.iter().enumerate();
    let columns = columns.map(|(nth, [column, _])| format!("{column} AS order_{nth}"));
    columns.collect::<Vec<_>>().join(", ")
}

/// Returns the order by these aliases.
fn by_name(order: &[[String; 2]]) -> Vec<[String; 2]> {
    let columns = order.iter().enumerate();
    let columns = columns.map(|(nth, [_, direction])| [format!("order_{nth}"), direction.clone()]);
    columns.collect()
}
