//! Shapes as types.
//!
//! The macro derives a placeholder's shape from the name of its type or from the pattern, and the
//! collision check relies on it. A user's own `struct Uuid(String)` would break that, so the
//! expansion requires [`Within`] of the value's real type.
//!
//! ```
//! use advisory_runtime::{KeyPart, shape};
//!
//! // A date renders as a `Date`, whose texts collide with no `Uuid`; every shape is within `Text`.
//! fn fits<T: KeyPart<Shape: shape::Within<shape::Text>>>() {}
//! fits::<u64>();
//! fits::<String>();
//! ```

use advisory_pattern::Shape as Language;

/// A shape as a type. Sealed: patterns can only be checked with the shapes that `advisory-pattern`
/// knows.
///
/// # Examples
///
/// ```
/// use advisory_runtime::{KeyPart, shape::Shape};
///
/// /// What the collision check knows of a type's texts.
/// fn shape_of<T: KeyPart>(_: &T) -> String {
///     format!("{:?}", <T::Shape as Shape>::LANGUAGE)
/// }
/// assert_eq!(shape_of(&42_i64), "Int");
/// ```
pub trait Shape: sealed::Sealed {
    /// The set of texts.
    const LANGUAGE: Language;
}

/// Every text of the shape `Self` is a text of the shape `S`.
///
/// # Examples
///
/// ```
/// use advisory_runtime::{KeyPart, shape};
///
/// /// Takes integers alone: each of their texts is one of `Int`.
/// fn number<T: KeyPart<Shape: shape::Within<shape::Int>>>(_: T) {}
/// number(42_u8);
/// ```
#[diagnostic::on_unimplemented(
    message = "this value renders as `{Self}`, but the key pattern expects `{S}`",
    label = "the shape comes from the type's name or from the pattern",
    note = "write the value's shape after the placeholder's name: `: text` fits every value"
)]
pub trait Within<S: Shape>: Shape {}

mod sealed {
    pub trait Sealed {}
}

/// Declares each shape with the wider ones, and the values of its example.
macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident within $($wider:ident),* = $($value:literal)+;)*) => { $(
        $(#[$doc])*
        ///
        /// # Examples
        ///
        /// ```
        /// use advisory_runtime::{KeyPart, shape};
        ///
        #[doc = concat!("fn takes(_: impl KeyPart<Shape: shape::Within<shape::", stringify!($name), ">>) {}")]
        $(#[doc = concat!("takes(", $value, ");")])+
        /// ```
        #[derive(Debug)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl Shape for $name {
            const LANGUAGE: Language = Language::$name;
        }
        #[diagnostic::do_not_recommend]
        impl Within<$name> for $name {}
        $(
            #[diagnostic::do_not_recommend]
            impl Within<$wider> for $name {}
        )*
    )* };
}

shapes! {
    /// An integer that can be negative: `-42`.
    Int within Text, Raw = "-42_i64" "42_u8";
    /// An integer that cannot: `42`.
    Uint within Int, Text, Raw = "42_u8";
    /// A UUID, lower case with hyphens.
    Uuid within Text, Raw = "uuid::Uuid::nil()";
    /// A date of the proleptic Gregorian calendar: `2025-01-15`.
    Date within Text, Raw = "jiff::civil::date(2025, 1, 15)";
    /// A time of day, without colons: `093000.5`.
    Time within Text, Raw = "jiff::civil::time(9, 30, 0, 500_000_000)";
    /// A date and a time of day: `2025-01-15T093000`.
    DateTime within Text, Raw = "jiff::civil::date(2025, 1, 15).at(9, 30, 0, 0)";
    /// A moment, in UTC: `2025-01-15T093000Z`.
    Timestamp within Text, Raw = "jiff::Timestamp::UNIX_EPOCH";
    /// `true` or `false`.
    Bool within Text, Raw = "true";
    /// One character, `%` and `:` escaped.
    Char within Text, Raw = "'é'";
    /// Any text, `%` and `:` escaped.
    Text within Raw = r#""room 7""# "42_u8";
    /// Any text as it is.
    Raw within = r#""room 7""# "42_u8";
}
