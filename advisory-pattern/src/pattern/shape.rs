//! The shape of a placeholder: the texts that it can render.
//!
//! Each shape documents the exact form that the runtime renders; its atoms describe that form or a
//! superset of it. Only `raw` can render a `:`, so that any other `:` in a key belongs to the
//! pattern.

use crate::pattern::atom::Atom;
use crate::pattern::char_set::CharSet;
use crate::words::words;

const DIGITS: CharSet = CharSet::of("0123456789");
const HEX: CharSet = CharSet::of("0123456789abcdef");
const D: Atom = Atom::one(DIGITS);
const D_STAR: Atom = Atom::star(DIGITS);
const D_OPTIONAL: Atom = Atom::optional(DIGITS);
const H: Atom = Atom::one(HEX);
const MINUS: Atom = c('-');
const SIGN: Atom = Atom::optional(CharSet::of("+-"));

const fn c(c: char) -> Atom {
    Atom::one(CharSet::only(c))
}

/// The set of texts that a placeholder can render.
///
/// Two patterns are compared by their shapes: the narrower the shape, the fewer patterns collide
/// with it.
///
/// # Examples
///
/// ```
/// use advisory_pattern::Shape;
///
/// assert_eq!(Shape::from_name("uint"), Some(Shape::Uint));
/// assert_eq!(Shape::of_type("NaiveDate"), Some(Shape::Date));
/// // Both `chrono` and `jiff` have one, and they mean different things.
/// assert_eq!(Shape::of_type("DateTime"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Shape {
    /// A signed integer, `-?\d+`: no plus sign, no leading zeros.
    Int,
    /// An unsigned integer, `\d+`: no leading zeros.
    Uint,
    /// A UUID, 8-4-4-4-12 lower-case hexadecimal digits.
    Uuid,
    /// A day, `[+-]?\d{4,6}-\d\d-\d\d`: years 0 to 9999 have four digits and no sign, others a sign
    /// and at least four digits.
    Date,
    /// A time of day in ISO 8601's basic format, `\d{6}(\.\d+)?`: `HHMMSS`, then up to nine digits
    /// of a fraction of a second, without trailing zeros; without the point if no digit is left. It
    /// has no colons, which belong to the pattern.
    Time,
    /// A day and time of day without a time zone: a date, `T`, a time.
    DateTime,
    /// An instant: its date and time in UTC, followed by `Z`.
    Timestamp,
    /// `true` or `false`.
    Bool,
    /// One character; `%` and `:` are written `%25` and `%3A`.
    Char,
    /// Any text, even empty; `%` and `:` are written `%25` and `%3A`. The atoms also accept a `%`
    /// that does not start an escape.
    Text,
    /// Any text as it is, for keys that other code computes without escapes.
    Raw,
}

words! {
    Shape:
    Int = "int",
    Uint = "uint",
    Uuid = "uuid",
    Date = "date",
    Time = "time",
    DateTime = "datetime",
    Timestamp = "timestamp",
    Bool = "bool",
    Char = "char",
    Text = "text",
    Raw = "raw",
}

impl Shape {
    /// Finds the shape that the last name of a type's path implies; callers use [`Shape::Text`] if
    /// it implies none.
    ///
    /// It knows neither names that mean different things in chrono, time and jiff (`DateTime`) nor
    /// names that say too little (`NonZero<_>`), because a shape that is too wide causes a false
    /// collision, and one that is too narrow hides a true one. For these users write the shape. The
    /// expansion checks the value, so a user's type with one of these names does not compile.
    #[must_use]
    pub fn of_type(last_name: &str) -> Option<Self> {
        Some(match last_name {
            "i8" | "i16" | "i32" | "i64" | "i128" | "isize" | "NonZeroI8" | "NonZeroI16"
            | "NonZeroI32" | "NonZeroI64" | "NonZeroI128" | "NonZeroIsize" => Self::Int,
            "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "NonZeroU8" | "NonZeroU16"
            | "NonZeroU32" | "NonZeroU64" | "NonZeroU128" | "NonZeroUsize" => Self::Uint,
            "Uuid" => Self::Uuid,
            "NaiveDate" | "Date" => Self::Date,
            "NaiveTime" | "Time" => Self::Time,
            "NaiveDateTime" | "PrimitiveDateTime" => Self::DateTime,
            "OffsetDateTime" | "Timestamp" => Self::Timestamp,
            "bool" => Self::Bool,
            "char" => Self::Char,
            "str" | "String" | "Cow" => Self::Text,
            _ => return None,
        })
    }

    /// Returns the shape's language.
    #[must_use]
    pub const fn atoms(self) -> &'static [Atom] {
        match self {
            Self::Int => &INT,
            Self::Uint => &UINT,
            Self::Uuid => &UUID,
            Self::Date => &DATE,
            Self::Time => &TIME,
            Self::DateTime => &DATE_TIME,
            Self::Timestamp => &TIMESTAMP,
            Self::Bool => &BOOL,
            Self::Char => &CHAR,
            Self::Text => &TEXT,
            Self::Raw => &RAW,
        }
    }

    /// Returns `true` if values are free text, which filters can change.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Raw)
    }
}

static INT: [Atom; 3] = [Atom::optional(CharSet::only('-')), D, D_STAR];
static UINT: [Atom; 2] = [D, D_STAR];
static UUID: [Atom; 36] = {
    let mut atoms = [H; 36];
    atoms[8] = MINUS;
    atoms[13] = MINUS;
    atoms[18] = MINUS;
    atoms[23] = MINUS;
    atoms
};
static DATE: [Atom; 13] = date();
static TIME: [Atom; 10] = time();
static DATE_TIME: [Atom; 24] = join(&date(), c('T'), &time());
static TIMESTAMP: [Atom; 25] = join(&join::<24>(&date(), c('T'), &time()), c('Z'), &[]);
static BOOL: [Atom; 11] = join(
    &[Atom::branch(5), c('t'), c('r'), c('u'), c('e')],
    Atom::skip(5),
    &[c('f'), c('a'), c('l'), c('s'), c('e')],
);
static CHAR: [Atom; 10] = [
    Atom::branch(2),
    Atom::one(CharSet::all_but("%:")),
    Atom::skip(7),
    c('%'),
    Atom::branch(3),
    c('2'),
    c('5'),
    Atom::skip(2),
    c('3'),
    c('A'),
];
static TEXT: [Atom; 1] = [Atom::star(CharSet::all_but(":"))];
static RAW: [Atom; 1] = [Atom::star(CharSet::ANY)];

const fn date() -> [Atom; 13] {
    let year = [SIGN, D, D, D, D, D_OPTIONAL, D_OPTIONAL];
    join(&year, MINUS, &[D, D, MINUS, D, D])
}

const fn time() -> [Atom; 10] {
    join(&[D, D, D, D, D, D], Atom::branch(3), &[c('.'), D, D_STAR])
}

/// `first`, then `middle`, then `last`; `N` is one more than the two have.
const fn join<const N: usize>(first: &[Atom], middle: Atom, last: &[Atom]) -> [Atom; N] {
    let mut atoms = [middle; N];
    let mut i = 0;
    while i < N {
        if i < first.len() {
            atoms[i] = first[i];
        } else if i > first.len() {
            atoms[i] = last[i - first.len() - 1];
        }
        i += 1;
    }
    atoms
}
