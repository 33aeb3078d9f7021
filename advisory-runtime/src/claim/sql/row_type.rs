//! A type of row as a value, from which its statements are written. With a type parameter instead,
//! the code that writes SQL would be compiled once for each type of row.

use super::table;
use crate::claim::column_type::{HolderType, Time};
use crate::claim::key::KeyColumns;
use crate::claim::optional_column::{
    CountColumn, MaybeColumn, MaybeCount, MaybePer, MaybeRunAt, MaybeTime, TimeColumn,
};
use crate::claim::table::{Claim, LONGEST, ttl};
use crate::rows::End;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment as _;
use diesel::{Column, Expression};
use std::time::Duration;

/// The table of a type of row, its columns, and its settings.
pub(in crate::claim) struct RowType {
    /// The quoted name, with the schema if there is one.
    pub(super) table: String,
    pub(super) key: &'static [&'static str],
    pub(super) until: &'static str,
    /// The SQL around a `timestamptz` that converts it into the type of `until`.
    pub(super) until_around: [&'static str; 2],
    pub(super) by: &'static str,
    /// The SQL of a value for `by`. Its text is `:holder`.
    pub(super) by_value: &'static str,
    /// The SQL of `by` as a text.
    pub(super) by_text: &'static str,
    pub(super) completed: Option<TimeColumn>,
    pub(super) failed: Option<TimeColumn>,
    pub(super) error: Option<&'static str>,
    pub(super) run_at: Option<TimeColumn>,
    pub(super) attempts: Option<CountColumn>,
    pub(super) max_attempts_column: Option<CountColumn>,
    pub(super) max_attempts: Option<u32>,
    pub(super) per: Option<&'static str>,
    pub(super) limit: u32,
    /// The columns of the order, each with its direction. By default they are the time from which a
    /// row can be claimed, and the key.
    pub(super) order: Vec<[&'static str; 2]>,
    pub(super) ttl: Duration,
    pub(super) backoff: [Duration; 2],
    /// `true` if the type sets columns when a row fails.
    pub(super) sets_failed: bool,
}

impl RowType {
    pub(in crate::claim) fn of<T: Claim>() -> Self {
        const {
            assert!(
                !T::FailedAt::DELETES,
                "only `CompletedAt` can be `Deleted`: write `Absent`, and call `claim::delete`"
            );
        }
        let mut order: Vec<_> = T::ORDER.iter().map(|order| order.parts).collect();
        if order.is_empty() {
            order.extend(T::RunAt::COLUMN.map(|run_at| [run_at.name, ""]));
            order.extend(T::Key::NAMES.iter().map(|&name| [name, ""]));
        }
        Self {
            table: table::<T>(),
            key: T::Key::NAMES,
            until: T::LockedUntil::NAME,
            until_around: <<T::LockedUntil as Expression>::SqlType as Time>::AROUND,
            by: T::LockedBy::NAME,
            by_value: <<T::LockedBy as Expression>::SqlType as HolderType>::VALUE,
            by_text: <<T::LockedBy as Expression>::SqlType as HolderType>::TEXT,
            completed: T::CompletedAt::COLUMN,
            failed: T::FailedAt::COLUMN,
            error: T::ErrorMessage::COLUMN,
            run_at: T::RunAt::COLUMN,
            attempts: T::Attempts::COLUMN,
            max_attempts_column: T::MaxAttempts::COLUMN,
            max_attempts: T::MAX_ATTEMPTS,
            per: T::Per::COLUMN,
            limit: T::LIMIT.max(1),
            order,
            ttl: ttl::<T>(),
            backoff: T::BACKOFF.map(|pause| pause.min(LONGEST)),
            sets_failed: sets_columns::<T>(End::Fail),
        }
    }

    /// Returns `true` if attempts are limited.
    pub(super) const fn has_last_attempt(&self) -> bool {
        self.attempts.is_some()
            && self.failed.is_some()
            && (self.max_attempts.is_some() || self.max_attempts_column.is_some())
    }

    /// Returns the quoted name without the schema.
    pub(super) fn table_name(&self) -> String {
        match self.table.rsplit_once("\".\"") {
            Some((_, name)) => format!("\"{name}"),
            None => self.table.clone(),
        }
    }

    /// Returns the conditions on rows that are not done for good.
    pub(super) fn pending(&self) -> impl Iterator<Item = &'static str> {
        let completed = self.completed.map(|_| "{completed} IS NULL");
        let failed = self.failed.map(|_| "{failed} IS NULL");
        completed.into_iter().chain(failed)
    }

    /// Returns the columns of the order, each written by `of`, and the SQL after each.
    pub(super) fn order_by(&self, of: impl Fn(&str) -> String) -> Vec<[String; 2]> {
        let order = self.order.iter();
        let order = order.map(|[column, direction]| [of(column), (*direction).to_owned()]);
        order.collect()
    }

    /// Returns the columns of the order, each written by `of`.
    pub(super) fn order_names(&self, of: impl Fn(&str) -> String) -> String {
        let names: Vec<_> = self.order.iter().map(|[column, _]| of(column)).collect();
        names.join(", ")
    }

    /// Returns `true` if rows in this order can be compared with a position.
    pub(in crate::claim) fn is_ascending(&self) -> bool {
        self.order.iter().all(|[_, direction]| direction.is_empty())
    }
}

/// Returns `true` if the row's type sets columns at this end, by `#[claim(completed = …)]` or
/// `#[claim(failed = …)]`.
pub(in crate::claim) fn sets_columns<T: Claim>(end: End) -> bool {
    let is_noop = match end {
        End::Complete => T::completed().is_noop(&Pg),
        End::Fail | End::Retry { .. } => T::failed().is_noop(&Pg),
        End::Release | End::Delete => Ok(true),
    };
    !is_noop.unwrap_or(true)
}
