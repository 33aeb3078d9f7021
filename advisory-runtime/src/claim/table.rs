//! The description of rows that can be claimed: their table, lease columns, key and order.

use super::column_type::{Count, HolderType, NullableTime, Time};
use crate::rows::DEFAULT_TTL;
use diesel::deserialize::{FromSqlRow, Result};
use diesel::expression::{AsExpression, TypedExpressionType};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::row::Row;
use diesel::serialize::ToSql;
use diesel::sql_types::{Array, HasSqlType, Nullable, SqlType, Text, Timestamptz, is_nullable};
use diesel::{
    AsChangeset, Column, Expression, QueryResult, QuerySource, Selectable, SelectableExpression,
};
use std::marker::PhantomData;
use std::time::Duration;

/// A row of a table with lease columns. Derive it with [`macro@super::Claim`], together with
/// `Queryable` and `Selectable`.
///
/// Implement it by hand only if the row is not a struct with the key's columns as fields.
///
/// # Examples
///
/// ```
#[doc = example_of_jobs!()]
/// use advisory_runtime::claim;
///
/// /// Works for the rows of every table.
/// fn label<T: claim::Claim>(job: &Claimed<T>) -> String {
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
    /// The key's columns, which are unique together and never NULL: [`One`] column, or a tuple of
    /// them.
    type Key: KeyColumns<Self::Table> + 'static;
    /// The values of the key in this row.
    type KeyValue<'a>: RowKey<Self::Key> + Send;
    /// The column for the time at which the claim expires.
    type LockedUntil: Column<Table = Self::Table, SqlType: NullableTime>;
    /// The column that identifies the claim that holds the row.
    type LockedBy: Column<Table = Self::Table, SqlType: HolderType>;
    /// The column for the time at which the row was completed; [`Absent`] if rows are never
    /// completed for good, [`Deleted`] if completed rows are deleted.
    type CompletedAt: MaybeTime<Self::Table>;
    /// The column for the time at which the row failed for good; [`Absent`] if rows do not fail.
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
        NothingToSet
    }

    /// Returns the columns to set when a row fails for good, unless the caller sets some. They are
    /// also set when the library fails the row because its worker died.
    #[must_use]
    fn failed() -> impl QueryFragment<Pg> + Send + Sync + 'static {
        NothingToSet
    }

    /// Builds the row from the columns of [`selection`](Self::selection).
    fn from_row<'a>(row: &impl Row<'a, Pg>) -> Result<Self>;

    /// Returns the values of the key in this row.
    fn key(&self) -> Self::KeyValue<'_>;
}

/// No columns to set.
struct NothingToSet;

impl QueryFragment<Pg> for NothingToSet {
    fn walk_ast<'b>(&'b self, _: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        Ok(())
    }
}

/// Converts an argument of the derive into columns to set.
#[doc(hidden)]
pub fn changes<T: Claim, S>(changes: S) -> S::Changeset
where
    S: AsChangeset<Target = T::Table, Changeset: QueryFragment<Pg> + Send + Sync + 'static>,
{
    changes.as_changeset()
}

/// Returns [`Claim::TTL`] within its limits, in the whole milliseconds that the server takes.
pub(super) fn ttl<T: Claim>() -> Duration {
    const SHORTEST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
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

/// A trait that columns implement and [`Absent`] does not. The compiler reports it instead of
/// `Column`.
macro_rules! column_marker {
    (#[$message:meta] $marker:ident) => {
        #[doc(hidden)]
        #[$message]
        pub trait $marker {}

        #[diagnostic::do_not_recommend]
        impl<C: Column> $marker for C {}
    };
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

/// The columns of a table's key.
pub trait KeyColumns<Table> {
    /// The columns' names.
    const NAMES: &'static [&'static str];
}

#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a column of the key can be NULL, and `= NULL` finds no row",
    label = "the key begins here",
    note = "make it `NOT NULL` in the table, and not `Nullable` in `diesel::table!`"
)]
pub trait NeverNull {}

impl NeverNull for is_nullable::NotNull {}

/// A key of one column.
#[derive(Clone, Copy, Debug)]
pub struct One<C>(pub C);

impl<Table, C: Column<Table = Table, SqlType: SqlType<IsNull: NeverNull>>> KeyColumns<Table>
    for One<C>
{
    const NAMES: &'static [&'static str] = &[C::NAME];
}

/// Values that Diesel takes for a key's columns: `42`, or `(matrix_id, &chunk_hash)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value of the key `{K}`",
    label = "expected what Diesel takes for the key's column, or a tuple for several columns, in their order"
)]
pub trait KeyValue<K> {
    /// Returns the values as SQL, separated by commas.
    fn bound(self) -> impl QueryFragment<Pg> + Send + Sync;
}

impl<C, V> KeyValue<One<C>> for V
where
    C: Column<SqlType: SqlType + TypedExpressionType>,
    V: AsExpression<C::SqlType, Expression: QueryFragment<Pg> + Send + Sync>,
{
    fn bound(self) -> impl QueryFragment<Pg> + Send + Sync {
        self.as_expression()
    }
}

/// The key of a row. Several keys are bound as one array for each column.
pub trait RowKey<K>: KeyValue<K> + Sized {
    /// The arrays as functions that return rows, separated by commas.
    #[doc(hidden)]
    type Arrays: QueryFragment<Pg> + Send + Sync;
    #[doc(hidden)]
    fn arrays(keys: impl Iterator<Item = Self>) -> Self::Arrays;
}

impl<C, V> RowKey<One<C>> for V
where
    C: Column<SqlType: SqlType>,
    V: KeyValue<One<C>> + ToSql<C::SqlType, Pg> + Send + Sync,
    Pg: HasSqlType<C::SqlType>,
{
    type Arrays = KeyArray<C::SqlType, V>;

    fn arrays(keys: impl Iterator<Item = Self>) -> Self::Arrays {
        KeyArray(keys.collect(), PhantomData)
    }
}

/// The values of a key's column.
#[doc(hidden)]
pub struct KeyArray<S, V>(Vec<V>, PhantomData<fn() -> S>);

impl<S, V> QueryFragment<Pg> for KeyArray<S, V>
where
    S: 'static,
    V: ToSql<S, Pg>,
    Pg: HasSqlType<S>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("pg_catalog.unnest(");
        out.push_bind_param::<Array<S>, _>(&self.0)?;
        out.push_sql(")");
        Ok(())
    }
}

macro_rules! composite {
    ($($column:ident $value:ident $nth:tt),+) => {
        impl<Table, $($column: Column<Table = Table, SqlType: SqlType<IsNull: NeverNull>>),+> KeyColumns<Table>
            for ($($column),+)
        {
            const NAMES: &'static [&'static str] = &[$($column::NAME),+];
        }

        impl<$($column, $value),+> KeyValue<($($column),+)> for ($($value),+)
        where
            $(
                $column: Column<SqlType: SqlType + TypedExpressionType>,
                $value: AsExpression<
                    $column::SqlType,
                    Expression: QueryFragment<Pg> + Send + Sync,
                >,
            )+
        {
            fn bound(self) -> impl QueryFragment<Pg> + Send + Sync {
                ($(self.$nth.as_expression()),+)
            }
        }

        impl<$($column, $value),+> RowKey<($($column),+)> for ($($value),+)
        where
            Self: KeyValue<($($column),+)>,
            $(
                $column: Column<SqlType: SqlType>,
                $value: ToSql<$column::SqlType, Pg> + Send + Sync,
                Pg: HasSqlType<$column::SqlType>,
            )+
        {
            type Arrays = ($(KeyArray<$column::SqlType, $value>),+);

            fn arrays(keys: impl Iterator<Item = Self>) -> Self::Arrays {
                let mut arrays = ($(KeyArray::<$column::SqlType, $value>(Vec::new(), PhantomData)),+);
                for key in keys {
                    $(arrays.$nth.0.push(key.$nth);)+
                }
                arrays
            }
        }
    };
}

composite!(A V 0, B W 1);
composite!(A V 0, B W 1, C X 2);
composite!(A V 0, B W 1, C X 2, D Y 3);

/// An optional column, or [`Absent`].
pub trait MaybeColumn<Table, SqlType> {
    /// The column's name, if the table has it.
    const COLUMN: Option<&'static str>;
}

/// The table has no such column.
#[derive(Clone, Copy, Debug)]
pub struct Absent;

/// A completed row is deleted, so no column says when it was completed.
#[derive(Clone, Copy, Debug)]
pub struct Deleted;

/// A column for a time.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct TimeColumn {
    pub(super) name: &'static str,
    /// The SQL around a `timestamptz` that converts it into the column's type.
    pub(super) around: [&'static str; 2],
    pub(super) is_nullable: bool,
}

impl TimeColumn {
    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    pub(super) const fn of<C: Column<SqlType: Time>>() -> Self {
        Self {
            name: C::NAME,
            around: <C::SqlType as Time>::AROUND,
            is_nullable: <C::SqlType as Time>::IS_NULLABLE,
        }
    }
}

/// A column for the time of an end, [`Absent`], or [`Deleted`].
pub trait MaybeTime<Table> {
    /// The column, if the table has it.
    #[doc(hidden)]
    const COLUMN: Option<TimeColumn>;
    /// `true` if the row is deleted instead.
    #[doc(hidden)]
    const DELETES: bool = false;
}

impl<Table> MaybeTime<Table> for Absent {
    const COLUMN: Option<TimeColumn> = None;
}

impl<Table> MaybeTime<Table> for Deleted {
    const COLUMN: Option<TimeColumn> = None;
    const DELETES: bool = true;
}

impl<Table, C: Column<Table = Table, SqlType: NullableTime>> MaybeTime<Table> for C {
    const COLUMN: Option<TimeColumn> = Some(TimeColumn::of::<C>());
}

/// A column for the time from which a row can be claimed, or [`Absent`].
pub trait MaybeRunAt<Table> {
    /// The column, if the table has it.
    #[doc(hidden)]
    const COLUMN: Option<TimeColumn>;
}

impl<Table> MaybeRunAt<Table> for Absent {
    const COLUMN: Option<TimeColumn> = None;
}

impl<Table, C: Column<Table = Table, SqlType: Time>> MaybeRunAt<Table> for C {
    const COLUMN: Option<TimeColumn> = Some(TimeColumn::of::<C>());
}

/// A column for a number of attempts.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct CountColumn {
    pub(crate) name: &'static str,
    pub(super) largest: i64,
    pub(super) is_nullable: bool,
}

/// A column that counts attempts, or [`Absent`].
pub trait MaybeCount<Table> {
    /// The column, if the table has it.
    #[doc(hidden)]
    const COLUMN: Option<CountColumn>;
}

impl<Table> MaybeCount<Table> for Absent {
    const COLUMN: Option<CountColumn> = None;
}

impl<Table, C: Column<Table = Table, SqlType: Count>> MaybeCount<Table> for C {
    const COLUMN: Option<CountColumn> = Some(CountColumn {
        name: C::NAME,
        largest: <C::SqlType as Count>::MAX,
        is_nullable: <C::SqlType as Count>::IS_NULLABLE,
    });
}

/// A column with a limit of running rows for each of its values, or [`Absent`].
pub trait MaybePer<Table> {
    /// The column's name, if there is a limit.
    #[doc(hidden)]
    const COLUMN: Option<&'static str>;
}

impl<Table> MaybePer<Table> for Absent {
    const COLUMN: Option<&'static str> = None;
}

impl<Table, C: Column<Table = Table>> MaybePer<Table> for C {
    const COLUMN: Option<&'static str> = Some(C::NAME);
}

impl<Table, SqlType> MaybeColumn<Table, SqlType> for Absent {
    const COLUMN: Option<&'static str> = None;
}

impl<Table, SqlType, C> MaybeColumn<Table, SqlType> for C
where
    C: Column<Table = Table, SqlType = SqlType>,
{
    const COLUMN: Option<&'static str> = Some(C::NAME);
}

/// The columns that the table has under their default names, for the derive.
#[doc(hidden)]
pub trait Found {
    type LockedUntil;
    type LockedBy;
    type CompletedAt;
    type FailedAt;
    type ErrorMessage;
}

/// Refuses a table without lease columns. The derive calls it, because the compiler would otherwise
/// report Diesel's own requirements on a column.
#[doc(hidden)]
pub const fn check_columns<Until: ExpiryColumn, By: HolderColumn>() {}

column_marker! {
    #[diagnostic::on_unimplemented(
        message = "the table has no column `locked_until`, so its rows can't be claimed",
        label = "no `locked_until`",
        note = "a claim needs two columns: in SQL, `ALTER TABLE … ADD COLUMN locked_until timestamptz, ADD COLUMN locked_by text`; in \
                `diesel::table!`, `locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text>`",
        note = "for a column with another name, write `#[claim(locked_until = …)]`; `advisory_runtime::guide::claims` has the columns in SQL"
    )]
    ExpiryColumn
}

column_marker! {
    #[diagnostic::on_unimplemented(
        message = "the table has no column `locked_by`, so its rows can't be claimed",
        label = "no `locked_by`",
        note = "in SQL, `ALTER TABLE … ADD COLUMN locked_by text`; in `diesel::table!`, `locked_by -> Nullable<Text>`",
        note = "for a column with another name, write `#[claim(locked_by = …)]`; `advisory_runtime::guide::claims` has the columns in SQL"
    )]
    HolderColumn
}

/// A column, or [`Missing`] in its place if the table lacks it, so that [`check_columns`] is the
/// only error.
#[doc(hidden)]
pub trait OrMissing<Table, SqlType> {
    type Column;
}

impl<Table, SqlType> OrMissing<Table, SqlType> for Absent {
    type Column = Missing<Table, SqlType>;
}

impl<Table, SqlType, C: Column> OrMissing<Table, SqlType> for C {
    type Column = C;
}

#[doc(hidden)]
pub type ExpiryOf<T, Table> =
    <<T as Found>::LockedUntil as OrMissing<Table, Nullable<Timestamptz>>>::Column;

#[doc(hidden)]
pub type HolderOf<T, Table> = <<T as Found>::LockedBy as OrMissing<Table, Nullable<Text>>>::Column;

/// A column that the table lacks.
#[doc(hidden)]
pub struct Missing<Table, SqlType>(PhantomData<fn() -> (Table, SqlType)>);

impl<Table, S: SqlType + TypedExpressionType> Expression for Missing<Table, S> {
    type SqlType = S;
}

impl<Table: diesel::Table, S: SqlType + TypedExpressionType> Column for Missing<Table, S> {
    type Table = Table;
    const NAME: &'static str = "";
}

/// Stands in for the columns that a table lacks. The derive imports this module where the table's
/// own columns shadow it.
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "named like the columns")]
pub mod absent {
    pub use super::{
        Absent as completed_at, Absent as error_message, Absent as failed_at, Absent as locked_by,
        Absent as locked_until,
    };
}

/// One column of the order in which rows are claimed.
#[derive(Debug)]
pub struct Order<Table> {
    pub(super) column: &'static str,
    /// The SQL after the column.
    pub(super) direction: &'static str,
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
            column: C::NAME,
            direction,
            table: PhantomData,
        }
    }

    /// Returns the column and the SQL after it.
    pub(crate) const fn parts(&self) -> [&'static str; 2] {
        [self.column, self.direction]
    }
}
