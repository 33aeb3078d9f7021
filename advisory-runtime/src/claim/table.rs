//! The description of rows that can be claimed: their table, lease columns and order.

use super::column_type::{HolderType, NullableTime};
use super::key::{KeyColumns, RowKey};
use super::optional_column::{
    Absent, MaybeColumn, MaybeCount, MaybePer, MaybeRunAt, MaybeTime, column_marker,
};
use crate::rows::DEFAULT_TTL;
use diesel::deserialize::{FromSqlRow, Result};
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel::row::Row;
use diesel::sql_types::{Nullable, Text};
use diesel::{AsChangeset, Column, Expression, QuerySource, Selectable, SelectableExpression};
use std::marker::PhantomData;
use std::time::Duration;

/// A row of a table with lease columns. Derive it with [`macro@super::Claim`], together with
/// `Queryable` and `Selectable`.
///
/// Implement it by hand only if the row is not a struct with the key's columns as fields.
///
/// ```
#[doc = example_of_jobs!()]
/// /// Works for the rows of every table.
/// fn label<T: Claim>(job: &Claimed<T>) -> String {
///     format!("held by {} for {:?}", job.locked_by(), job.ttl())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` can't be claimed",
    label = "no `Claim`",
    note = "write `#[derive(Queryable, Selectable, Claim)]` on the row's struct"
)]
pub trait Claim: Sized + Send + Sync + 'static {
    /// The table of the row.
    type Table: diesel::Table
        + QuerySource<FromClause: QueryFragment<Pg> + Send + Sync>
        + Default
        + 'static;
    /// The key's columns, which are unique together and never NULL: [`One`](super::One) column, or
    /// a tuple of them.
    type Key: KeyColumns<Self::Table> + 'static;
    /// The values of the key in this row.
    type KeyValue<'a>: RowKey<Self::Key> + Send;
    /// The column for the time at which the claim expires.
    type LockedUntil: Column<Table = Self::Table, SqlType: NullableTime>;
    /// The column that identifies the claim that holds the row.
    type LockedBy: Column<Table = Self::Table, SqlType: HolderType>;
    /// The column for the time at which the row was completed; [`Absent`] if rows are never
    /// completed for good, [`Deleted`](super::Deleted) if completed rows are deleted.
    type CompletedAt: MaybeTime<Self::Table>;
    /// The column for the time at which the row failed for good; [`Absent`] if rows do not fail. A
    /// type with [`Deleted`](super::Deleted) here cannot be claimed: its program does not compile.
    type FailedAt: MaybeTime<Self::Table>;
    /// The column for the reason why the last attempt failed, or [`Absent`].
    type ErrorMessage: MaybeColumn<Self::Table, Nullable<Text>>;
    /// The column for the time from which the row can be claimed; [`Absent`] if it can be claimed
    /// at once.
    type RunAt: MaybeRunAt<Self::Table>;
    /// The column that counts the claims of the row; [`Absent`] if they are not counted.
    type Attempts: MaybeCount<Self::Table>;
    /// The column for the most attempts that the row can have, where NULL sets no limit; [`Absent`]
    /// if [`MAX_ATTEMPTS`](Self::MAX_ATTEMPTS) applies to every row.
    type MaxAttempts: MaybeCount<Self::Table>;
    /// The column that groups rows: at most [`LIMIT`](Self::LIMIT) rows with one value of it are
    /// claimed at a time. [`Absent`] for a type without a limit.
    type Per: MaybePer<Self::Table>;
    /// The columns to read.
    type Selection: QueryFragment<Pg> + SelectableExpression<Self::Table> + Send + Sync;

    /// The order in which rows are claimed. If it is empty, they are claimed in the order of
    /// [`RunAt`](Self::RunAt) and the key.
    const ORDER: &'static [Order<Self::Table>] = &[];
    /// The time that a claim lasts, in whole milliseconds: at least one, at most ten years. A
    /// column with a precision, such as `timestamptz(0)`, rounds the time at which it expires.
    const TTL: Duration = DEFAULT_TTL;
    /// The time after which [`run`](super::run) and [`renew_while`](super::renew_while) renew the
    /// claim: by default a third of [`TTL`](Self::TTL), at most half of it.
    const RENEW: Duration = match Self::TTL.checked_div(3) {
        Some(third) => third,
        None => Self::TTL,
    };

    /// The most attempts that a row can have. When the last one fails, or its claim expires, the
    /// row fails for good.
    const MAX_ATTEMPTS: Option<u32> = None;
    /// The pause after the first failed attempt, and the longest pause. The pause doubles with each
    /// further failure.
    const BACKOFF: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(600)];

    /// The most rows with one value of [`Per`](Self::Per) that can be claimed at a time; at least
    /// one.
    const LIMIT: u32 = 1;

    /// Returns the columns to read.
    fn selection() -> Self::Selection;

    /// Returns the columns to set when a row is completed, unless the caller sets some. A worker
    /// sets them too.
    #[must_use]
    fn completed() -> impl QueryFragment<Pg> + Send + Sync + 'static {
        // `()` sets none.
    }

    /// Returns the columns to set when a row fails for good, unless the caller sets some. They are
    /// also set when the library fails the row because its worker died.
    #[must_use]
    fn failed() -> impl QueryFragment<Pg> + Send + Sync + 'static {
        // `()` sets none.
    }

    /// Builds the row from the columns of [`selection`](Self::selection).
    fn from_row<'a>(row: &impl Row<'a, Pg>) -> Result<Self>;

    /// Returns the values of the key in this row.
    fn key(&self) -> Self::KeyValue<'_>;
}

/// Converts an argument of the derive into columns to set.
#[doc(hidden)]
pub fn changes<T: Claim, S>(changes: S) -> S::Changeset
where
    S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync + 'static>,
{
    changes.as_changeset()
}

/// The longest time of a claim, and of a pause before another attempt.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Returns [`Claim::TTL`] within its limits, in the whole milliseconds that the server takes.
pub(super) fn ttl<T: Claim>() -> Duration {
    const SHORTEST: Duration = Duration::from_millis(1);
    let ttl = T::TTL.clamp(SHORTEST, LONGEST);
    Duration::new(ttl.as_secs(), ttl.subsec_millis() * 1_000_000)
}

/// Returns the time between two renewals of a claim.
pub(super) fn every<T: Claim>() -> Duration {
    // Renewals without a pause would keep a connection busy.
    const SHORTEST: Duration = Duration::from_millis(10);
    T::RENEW.min(ttl::<T>() / 2).max(SHORTEST)
}

#[doc(hidden)]
pub type SelectionOf<T> = <T as Selectable<Pg>>::SelectExpression;

#[doc(hidden)]
#[must_use]
pub fn selection<T: Selectable<Pg>>() -> SelectionOf<T> {
    T::construct_selection()
}

#[doc(hidden)]
pub fn from_row<'a, T>(row: &impl Row<'a, Pg>) -> Result<T>
where
    T: Selectable<Pg> + FromSqlRow<<SelectionOf<T> as Expression>::SqlType, Pg>,
{
    T::build_from_row(row)
}

/// A row of a table with a `failed_at` column, which [`fail`](super::fail) needs.
pub trait Fails: Claim {}

impl<T: Claim> Fails for T where T::FailedAt: FailedColumn {}

column_marker! {
    #[diagnostic::on_unimplemented(
        message = "the table has no column for the time of a failure, so its rows can't fail",
        label = "no `failed_at`",
        note = "write `#[claim(failed_at = column)]`, or release the row with `claim::release`"
    )]
    FailedColumn
}

/// A row of a table with a `run_at` column, which [`retry`](super::retry) needs.
pub trait Retries: Claim {}

impl<T: Claim> Retries for T where T::RunAt: RunAtColumn {}

column_marker! {
    #[diagnostic::on_unimplemented(
        message = "the table has no column for the time of the next attempt, so its rows can't be retried later",
        label = "no `run_at`",
        note = "write `#[claim(run_at = column)]`, or release the row with `claim::release`"
    )]
    RunAtColumn
}

/// Refuses `max_attempts` for a table without a column for the time of a failure. The derive calls
/// it.
#[doc(hidden)]
pub const fn check_last_attempt<Failed: LastAttemptColumn>() {}

column_marker! {
    #[diagnostic::on_unimplemented(
        message = "the table has no column for the time of a failure, so no attempt is the last",
        label = "no `failed_at`",
        note = "`max_attempts` needs it: in SQL, `ALTER TABLE … ADD COLUMN failed_at timestamptz`; in `diesel::table!`, \
                `failed_at -> Nullable<Timestamptz>`",
        note = "for a column with another name, write `#[claim(failed_at = …)]`"
    )]
    LastAttemptColumn
}

/// A row of a table that keeps completed rows, so that an end can set their columns. Every row is
/// one, except with `completed_at = "delete"`.
pub trait KeepsCompleted: Claim {}

impl<T: Claim> KeepsCompleted for T where T::CompletedAt: KeptColumn {}

column_marker! {
    #[diagnostic::on_unimplemented(
        message = "completed rows are deleted, so no columns can be set",
        label = "`completed_at = \"delete\"`",
        note = "write `claim::complete`"
    )]
    KeptColumn
}

impl KeptColumn for Absent {}

/// One column of the order in which rows are claimed.
#[derive(Debug)]
pub struct Order<Table> {
    /// The column, and the SQL after it.
    pub(crate) parts: [&'static str; 2],
    table: PhantomData<fn() -> Table>,
}

impl<Table> Order<Table> {
    /// Orders by this column. In PostgreSQL a descending order has NULL first by default, and an
    /// ascending one last.
    #[must_use]
    pub const fn by<C: Column<Table = Table>>(is_descending: bool, nulls_first: bool) -> Self {
        let direction = match (is_descending, nulls_first) {
            (false, false) => "",
            (false, true) => " NULLS FIRST",
            (true, true) => " DESC",
            (true, false) => " DESC NULLS LAST",
        };
        Self {
            parts: [C::NAME, direction],
            table: PhantomData,
        }
    }
}
