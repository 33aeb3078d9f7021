//! Which rows can be claimed: of which table, by which columns and key, and in which order?

use crate::renewal::DEFAULT_TTL;
use diesel::deserialize::{FromSqlRow, Result};
use diesel::expression::{AsExpression, TypedExpressionType};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::row::Row;
use diesel::sql_types::{Nullable, SqlType, Text, Timestamptz, is_nullable};
use diesel::{Column, Expression, QueryResult, QuerySource, Selectable, SelectableExpression};
use std::marker::PhantomData;
use std::time::Duration;

/// A row of a table with lease columns. Derive it beside `Queryable` and `Selectable`: [`macro@super::Claim`].
///
/// By hand it is only needed where the row is no struct with the key's columns as fields.
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` can't be claimed",
    label = "no `Claim`",
    note = "write `#[derive(Queryable, Selectable, Claim)]` on the row's struct"
)]
pub trait Claim: Sized + Send + Sync + 'static {
    /// The table.
    type Table: diesel::Table
        + QuerySource<FromClause: QueryFragment<Pg> + Send + Sync>
        + Default
        + 'static;
    /// The key's columns, which are unique together and never NULL: [`One`] column, or a tuple of them.
    type Key: KeyColumns<Self::Table> + 'static;
    /// The values of the key in this row.
    type KeyValue<'a>: KeyValue<Self::Key> + Send;
    /// Until when the row is claimed.
    type LockedUntil: Column<Table = Self::Table, SqlType = Nullable<Timestamptz>>;
    /// By which claim.
    type LockedBy: Column<Table = Self::Table, SqlType = Nullable<Text>>;
    /// When it was completed; [`Absent`] in a table whose rows are never done.
    type CompletedAt: MaybeColumn<Self::Table, Nullable<Timestamptz>>;
    /// When it failed for good; [`Absent`] in a table whose rows do not.
    type FailedAt: MaybeColumn<Self::Table, Nullable<Timestamptz>>;
    /// Why it failed.
    type ErrorMessage: MaybeColumn<Self::Table, Nullable<Text>>;
    /// What is read of the row.
    type Selection: QueryFragment<Pg> + SelectableExpression<Self::Table> + Send + Sync;

    /// Which row comes first. Without an order it is that of the key.
    const ORDER: &'static [Order<Self::Table>] = &[];
    /// How long a claim lasts: whole milliseconds, at least one, at most ten years.
    const TTL: Duration = DEFAULT_TTL;
    /// How often [`run`](super::run) and [`keep`](super::keep) renew it: a third of [`TTL`](Self::TTL), and at most half of it.
    const RENEW: Duration = third(Self::TTL);

    /// What is read of the row.
    fn selection() -> Self::Selection;

    /// Reads the row from what [`selection`](Self::selection) has selected.
    fn from_row<'a>(row: &impl Row<'a, Pg>) -> Result<Self>;

    /// The values of the key in this row.
    fn key(&self) -> Self::KeyValue<'_>;
}

/// How long a claim lasts, as both clocks can count it: the server takes whole milliseconds.
pub(super) fn ttl<T: Claim>() -> Duration {
    const SHORTEST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    let ttl = T::TTL.clamp(SHORTEST, LONGEST);
    Duration::new(ttl.as_secs(), ttl.subsec_millis() * 1_000_000)
}

/// Division is not yet `const` for `Duration`.
const fn third(ttl: Duration) -> Duration {
    match ttl.checked_div(3) {
        Some(third) => third,
        None => ttl,
    }
}

/// What is read of a row that is [`Selectable`].
#[doc(hidden)]
pub type SelectionOf<T> = <T as Selectable<Pg>>::SelectExpression;

/// The selection of a row that is [`Selectable`].
#[doc(hidden)]
#[must_use]
pub fn selection<T: Selectable<Pg>>() -> SelectionOf<T> {
    T::construct_selection()
}

/// Reads a row that is `Queryable` and [`Selectable`].
#[doc(hidden)]
pub fn from_row<'a, T>(row: &impl Row<'a, Pg>) -> Result<T>
where
    T: Selectable<Pg> + FromSqlRow<<SelectionOf<T> as Expression>::SqlType, Pg>,
{
    T::build_from_row(row)
}

/// A table that tells failed rows from others, so that a claim can end with [`fail`](super::fail).
pub trait Fails: Claim {}

impl<T: Claim> Fails for T where
    <T::FailedAt as MaybeColumn<T::Table, Nullable<Timestamptz>>>::Is: There
{
}

/// That a table has the column.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the table has no column for the time of a failure, so that its rows can't fail",
    label = "no `failed_at`",
    note = "write `#[claim(failed_at = column)]`, or give the row back by `claim::release`"
)]
pub trait There {}

/// There is such a column.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Present;

impl There for Present {}

/// The key's columns of a table.
pub trait KeyColumns<Table> {
    /// Their names.
    const NAMES: &'static [&'static str];
}

/// What Diesel says of a column that always has a value: no row is found by NULL.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a column of the key can be NULL, and no row is found by NULL",
    label = "the key begins here",
    note = "have it `NOT NULL` in the table, and not `Nullable` in `diesel::table!`"
)]
pub trait NeverNull {}

impl NeverNull for is_nullable::NotNull {}

/// A key of one column, or its value.
#[derive(Clone, Copy, Debug)]
pub struct One<C>(pub C);

impl<Table, C: Column<Table = Table, SqlType: SqlType<IsNull: NeverNull>>> KeyColumns<Table>
    for One<C>
{
    const NAMES: &'static [&'static str] = &[C::NAME];
}

/// Values that Diesel takes for a key's columns: `42`, or `(matrix_id, &chunk_hash)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no value of the key `{K}`",
    label = "expected what Diesel takes for the key's columns, several as a tuple in their order"
)]
pub trait KeyValue<K> {
    /// The values as SQL.
    type Bound: Bound;

    /// The values as SQL.
    fn bound(self) -> Self::Bound;
}

/// The values of a key's columns as SQL.
#[doc(hidden)]
pub trait Bound: Send + Sync {
    /// Appends the value of the column of this number.
    fn walk_nth<'b>(&'b self, nth: &str, out: AstPass<'_, 'b, Pg>) -> QueryResult<()>;
}

impl Bound for () {
    fn walk_nth<'b>(&'b self, _: &str, _: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        Ok(())
    }
}

impl<C, V> KeyValue<One<C>> for V
where
    C: Column<SqlType: SqlType + TypedExpressionType>,
    V: AsExpression<C::SqlType, Expression: QueryFragment<Pg> + Send + Sync>,
{
    type Bound = One<V::Expression>;

    fn bound(self) -> Self::Bound {
        One(self.as_expression())
    }
}

impl<E: QueryFragment<Pg> + Send + Sync> Bound for One<E> {
    fn walk_nth<'b>(&'b self, _: &str, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.0.walk_ast(out)
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
            type Bound = ($($value::Expression),+);

            fn bound(self) -> Self::Bound {
                ($(self.$nth.as_expression()),+)
            }
        }

        impl<$($value: QueryFragment<Pg> + Send + Sync),+> Bound for ($($value),+) {
            fn walk_nth<'b>(&'b self, nth: &str, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
                match nth {
                    $(stringify!($nth) => self.$nth.walk_ast(out),)+
                    _ => Ok(()),
                }
            }
        }
    };
}

composite!(A V 0, B W 1);
composite!(A V 0, B W 1, C X 2);
composite!(A V 0, B W 1, C X 2, D Y 3);

/// A column that not every table has, or [`Absent`].
pub trait MaybeColumn<Table, SqlType> {
    /// [`Absent`], or else something that is not.
    #[doc(hidden)]
    type Is;
    /// Its name, if there is one.
    const COLUMN: Option<&'static str>;
}

/// No such column.
#[derive(Clone, Copy, Debug)]
pub struct Absent;

impl<Table, SqlType> MaybeColumn<Table, SqlType> for Absent {
    type Is = Self;
    const COLUMN: Option<&'static str> = None;
}

impl<Table, SqlType, C> MaybeColumn<Table, SqlType> for C
where
    C: Column<Table = Table, SqlType = SqlType>,
{
    type Is = Present;
    const COLUMN: Option<&'static str> = Some(C::NAME);
}

/// Which terminal columns the table has under their usual names; what the derive asks where it is told none.
#[doc(hidden)]
pub trait Found {
    type CompletedAt;
    type FailedAt;
    type ErrorMessage;
}

/// What these names mean in a table without such columns. The derive names them where the table's own columns come first.
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "they stand where columns would")]
pub mod absent {
    pub use super::{Absent as completed_at, Absent as error_message, Absent as failed_at};
}

/// One column of the order in which rows are claimed.
#[derive(Debug)]
pub struct Order<Table> {
    pub(super) column: &'static str,
    is_descending: bool,
    nulls_are_first: bool,
    table: PhantomData<fn() -> Table>,
}

impl<Table> Order<Table> {
    /// Smallest first, nulls last.
    #[must_use]
    pub const fn ascending<C: Column<Table = Table>>() -> Self {
        Self {
            column: C::NAME,
            is_descending: false,
            nulls_are_first: false,
            table: PhantomData,
        }
    }

    /// Largest first, before them the nulls, as PostgreSQL has it.
    #[must_use]
    pub const fn descending<C: Column<Table = Table>>() -> Self {
        Self {
            column: C::NAME,
            is_descending: true,
            nulls_are_first: true,
            table: PhantomData,
        }
    }

    /// Before all others those without a value.
    #[must_use]
    pub const fn nulls_first(mut self) -> Self {
        self.nulls_are_first = true;
        self
    }

    /// Behind all others those without a value.
    #[must_use]
    pub const fn nulls_last(mut self) -> Self {
        self.nulls_are_first = false;
        self
    }

    /// What stands behind the column in SQL.
    pub(super) const fn direction(&self) -> &'static str {
        match (self.is_descending, self.nulls_are_first) {
            (false, false) => "",
            (false, true) => " NULLS FIRST",
            (true, true) => " DESC",
            (true, false) => " DESC NULLS LAST",
        }
    }
}
