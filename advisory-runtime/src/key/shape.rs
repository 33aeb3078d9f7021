//! Shapes as types.
//!
//! The macro derives a placeholder's shape from the name of its type or from the pattern, for the
//! check of collisions. A user's own `struct Uuid(String)` would break that check, so the expansion
//! requires [`Within`] of the value's real type.
//!
//! ```
//! use advisory_runtime::{KeyPart, shape};
//!
//! // Every shape is within `Text`.
//! fn fits<T: KeyPart<Shape: shape::Within<shape::Text>>>() {}
//! fits::<u64>();
//! fits::<String>();
//! ```

use advisory_pattern::Shape as Language;

/// A shape as a type. Sealed: patterns can only be checked with the shapes of `advisory-pattern`.
pub trait Shape: sealed::Sealed {
    /// The set of texts.
    const LANGUAGE: Language;
}

/// Every text of the shape `Self` is a text of the shape `S`.
#[diagnostic::on_unimplemented(
    message = "this value renders as `{Self}`, but the key pattern expects `{S}`",
    label = "the shape comes from the type's name or from the pattern",
    note = "write the value's shape after the placeholder's name: `: text` fits every value"
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
