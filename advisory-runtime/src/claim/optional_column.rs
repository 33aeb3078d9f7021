//! Columns that a table of jobs can have or lack.

use super::column_type::{Count, NullableTime, Time};
use diesel::expression::TypedExpressionType;
use diesel::sql_types::{Nullable, SqlType, Text, Timestamptz};
use diesel::{Column, Expression};
use std::marker::PhantomData;

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
pub(super) use column_marker;

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
    pub(crate) name: &'static str,
    /// The SQL around a `timestamptz` that converts it into the column's type.
    pub(super) around: [&'static str; 2],
    pub(super) is_nullable: bool,
}

impl TimeColumn {
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
