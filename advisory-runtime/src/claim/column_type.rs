//! The SQL types that the columns of a claim can have.

use diesel::sql_types::is_nullable::NotNull;
use diesel::sql_types::{
    BigInt, Integer, Nullable, SmallInt, SqlType, Text, Timestamp, Timestamptz, Uuid,
};

/// A type of time: `Timestamptz`, or `Timestamp`, which is written and read in UTC.
#[diagnostic::on_unimplemented(
    message = "a claim can't use a column of the type `{Self}` as a time",
    label = "the type of this column",
    note = "expected `Timestamptz`, or `Timestamp`, which is written and read in UTC"
)]
pub trait Time {
    /// The SQL around a `timestamptz` that converts it into this type.
    #[doc(hidden)]
    const AROUND: [&'static str; 2];
    #[doc(hidden)]
    const IS_NULLABLE: bool;
}

impl Time for Timestamptz {
    const AROUND: [&'static str; 2] = ["", ""];
    const IS_NULLABLE: bool = false;
}

// Does not depend on the session's `TimeZone`.
impl Time for Timestamp {
    const AROUND: [&'static str; 2] = ["pg_catalog.timezone('UTC',", ")"];
    const IS_NULLABLE: bool = false;
}

impl Time for Nullable<Timestamptz> {
    const AROUND: [&'static str; 2] = Timestamptz::AROUND;
    const IS_NULLABLE: bool = true;
}

impl Time for Nullable<Timestamp> {
    const AROUND: [&'static str; 2] = Timestamp::AROUND;
    const IS_NULLABLE: bool = true;
}

/// A type of time in a column that can be NULL.
#[diagnostic::on_unimplemented(
    message = "a claim can't use a column of the type `{Self}` as a time that can be NULL",
    label = "the type of this column",
    note = "expected `Nullable<Timestamptz>`, or `Nullable<Timestamp>`, which is written and read in UTC"
)]
pub trait NullableTime: Time {}

impl NullableTime for Nullable<Timestamptz> {}
impl NullableTime for Nullable<Timestamp> {}

/// A type that identifies the claim that holds a row: `Nullable<Text>` for the worker's name, `#`
/// and a UUID, or `Nullable<Uuid>` for the UUID alone.
#[diagnostic::on_unimplemented(
    message = "a claim can't use a column of the type `{Self}` to say who holds the row",
    label = "the type of this column",
    note = "expected `Nullable<Text>` for the worker's name and a UUID, or `Nullable<Uuid>` for the UUID alone"
)]
pub trait HolderType {
    /// `true` if the value contains the worker's name.
    #[doc(hidden)]
    const IS_NAMED: bool;
    /// The SQL of the value. Its text is `:holder`.
    #[doc(hidden)]
    const VALUE: &'static str;
    /// The SQL of the column as a text.
    #[doc(hidden)]
    const TEXT: &'static str;
}

impl HolderType for Nullable<Text> {
    const IS_NAMED: bool = true;
    const VALUE: &'static str = ":holder";
    const TEXT: &'static str = "{locked_by}";
}

impl HolderType for Nullable<Uuid> {
    const IS_NAMED: bool = false;
    const VALUE: &'static str = "CAST(:holder AS uuid)";
    const TEXT: &'static str = "CAST({locked_by} AS text)";
}

/// An integer type that counts attempts.
#[diagnostic::on_unimplemented(
    message = "a claim can't count attempts in a column of the type `{Self}`",
    label = "the type of this column",
    note = "expected `Integer`, `SmallInt` or `BigInt`"
)]
pub trait Count {
    #[doc(hidden)]
    const MAX: i64;
    #[doc(hidden)]
    const IS_NULLABLE: bool = false;
}

impl Count for SmallInt {
    const MAX: i64 = i16::MAX as i64;
}

impl Count for Integer {
    const MAX: i64 = i32::MAX as i64;
}

impl Count for BigInt {
    const MAX: i64 = i64::MAX;
}

impl<S: Count + SqlType<IsNull = NotNull>> Count for Nullable<S> {
    const MAX: i64 = S::MAX;
    const IS_NULLABLE: bool = true;
}
