//! Shapes as types.
//!
//! The macro derives a placeholder's shape from the name of its type or from the pattern, and the collision check relies on it. A
//! user's own `struct Uuid(String)` would break that, so the expansion requires [`Within`] of the value's real type.

use advisory_pattern::Shape as Language;

/// A shape as a type. Sealed: patterns can only be checked with the shapes that `advisory-pattern` knows.
pub trait Shape: sealed::Sealed {
    /// The set of texts.
    const LANGUAGE: Language;
}

/// Every text of the shape `Self` is a text of the shape `S`.
#[diagnostic::on_unimplemented(
    message = "this value renders as `{Self}`, and the key pattern takes it for `{S}`",
    label = "the shape was read off the type's name, or is written in the pattern",
    note = "write the shape that the value has behind the placeholder's name: `: text` fits every value"
)]
pub trait Within<S: Shape>: Shape {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident within $($wider:ident),*;)*) => { $(
        $(#[$doc])*
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
    Int within Text, Raw;
    /// An integer that cannot: `42`.
    Uint within Int, Text, Raw;
    /// A UUID, lower case with hyphens.
    Uuid within Text, Raw;
    /// A date of the proleptic Gregorian calendar: `2025-01-15`.
    Date within Text, Raw;
    /// A time of day, without colons: `093000.5`.
    Time within Text, Raw;
    /// A date and a time of day: `2025-01-15T093000`.
    DateTime within Text, Raw;
    /// A moment, in UTC: `2025-01-15T093000Z`.
    Timestamp within Text, Raw;
    /// `true` or `false`.
    Bool within Text, Raw;
    /// One character, `%` and `:` escaped.
    Char within Text, Raw;
    /// Any text, `%` and `:` escaped.
    Text within Raw;
    /// Any text as it is.
    Raw within;
}
