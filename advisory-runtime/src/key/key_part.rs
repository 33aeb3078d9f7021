//! The values that a placeholder can render, and their texts.
//!
//! The texts do not come from the types' `Display`: if a dependency's release changed a key, the
//! two halves of a half-upgraded fleet would no longer exclude each other.

use super::digits::Digits;
use super::{KeyText, shape};
use std::borrow::Cow;
use std::fmt::Write;
use std::num::NonZero;

/// A value that can be part of a lock key.
///
/// | values | text |
/// | --- | --- |
/// | integers, `NonZero` | `-42` |
/// | `bool`, `char`, strings | `true`, `é`, `room 7` |
/// | `uuid::Uuid` | `67e55044-10b1-426f-9247-bb680e5fe0c8` |
/// | `chrono::NaiveDate`, `time::Date`, `jiff::civil::Date` | `2025-01-15`; a year before 0 or after 9999 has a sign: `-0044-03-15`, `+10000-01-01` |
/// | `chrono::NaiveTime`, `time::Time`, `jiff::civil::Time` | `093000`, `093000.25`: no colons, no zeros at the end of a fraction |
/// | `chrono::NaiveDateTime`, `time::PrimitiveDateTime`, `jiff::civil::DateTime` | `2025-01-15T093000` |
/// | `chrono::DateTime`, `time::OffsetDateTime` and `UtcDateTime`, `jiff::Timestamp` and `Zoned` | `2025-01-15T083000Z`, in UTC |
///
/// Each crate needs the feature of its name. A day, a time or an instant has one text in all crates
/// and time zones, so that services with different crates share a lock. A leap second, which only
/// chrono has, is second 60: `235960.5`. (If an offset of odd seconds has moved it from the end of
/// the minute, its hour is 24 higher.)
///
/// `#[derive(KeyPart)]` is for newtypes and field-less enums. `&T`, `&mut T`, `Box`, `Rc`, `Arc`
/// and `Cow` render their contents.
///
/// Different values must render different texts. Floats have no implementation (`0.1 + 0.2` would
/// be another key than `0.3`): write a whole number in `with(…)`. Neither has `Option` (any text of
/// `None` could be that of a value): write `is_some()` and the value in `with(…)`.
///
/// # Examples
///
/// ```
/// use advisory_runtime::{KeyPart, KeyText, shape};
///
/// /// An account as `NL-0042`.
/// struct Account {
///     country: [char; 2],
///     number: u16,
/// }
///
/// impl KeyPart for Account {
///     type Shape = shape::Text;
///
///     fn render(&self, text: &mut KeyText<'_>) {
///         let [first, second] = self.country;
///         text.push_str(&format!("{first}{second}-{:04}", self.number));
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be part of an advisory lock key",
    label = "a placeholder of the key pattern renders this value",
    note = "a type of `uuid`, `chrono`, `time` or `jiff` needs the feature of that name: `advisory-runtime = {{ …, features = [\"uuid\"] }}`",
    note = "a key can hold integers, `bool`, `char` and strings; for a newtype or a field-less enum of your own, write `#[derive(KeyPart)]`; for another type with a `Display` that never \
            changes, such as a `Decimal`, the filter `<price|display>`; for any other a value of it, such as \
            `with(second = at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs()))`",
    note = "for a slice or a `Vec`, write `<rooms*>`: one lock for each element",
    note = "an `Option` does not render as one text: write both, `<is_known>:<owner>` with `with(is_known = owner.is_some(), owner = owner.unwrap_or_default())`. With `unwrap_or(0)` alone, `None` and `Some(0)` would be one lock",
    note = "a float does not render as one text either: write a whole number, such as `with(cents = (price * 100.0).round() as i64)`"
)]
pub trait KeyPart {
    /// The set of texts that [`render`](Self::render) can write.
    type Shape: shape::Within<shape::Text> + shape::Within<shape::Raw>;

    /// Writes the value's text.
    fn render(&self, text: &mut KeyText<'_>);
}

macro_rules! integers {
    ($shape:ident = |$value:ident| $is_negative:expr, $absolute:expr; $($int:ty)*) => { $(
        impl KeyPart for $int {
            type Shape = shape::$shape;

            #[allow(clippy::cast_lossless, reason = "a `usize` has no other way to a `u128`")]
            fn render(&self, text: &mut KeyText<'_>) {
                let $value = *self;
                let mut digits = Digits::new();
                if $is_negative {
                    digits.push(b'-');
                }
                digits.wide($absolute as u128);
                text.push_digits(&digits);
            }
        }

        impl KeyPart for NonZero<$int> {
            type Shape = shape::$shape;

            fn render(&self, text: &mut KeyText<'_>) {
                self.get().render(text);
            }
        }
    )* };
}
integers!(Int = |int| int < 0, int.unsigned_abs(); i8 i16 i32 i64 i128 isize);
integers!(Uint = |int| false, int; u8 u16 u32 u64 u128 usize);

impl KeyPart for bool {
    type Shape = shape::Bool;

    fn render(&self, text: &mut KeyText<'_>) {
        text.push_str(if *self { "true" } else { "false" });
    }
}

impl KeyPart for char {
    type Shape = shape::Char;

    fn render(&self, text: &mut KeyText<'_>) {
        text.push_str(self.encode_utf8(&mut [0; 4]));
    }
}

impl KeyPart for str {
    type Shape = shape::Text;

    fn render(&self, text: &mut KeyText<'_>) {
        text.push_str(self);
    }
}

macro_rules! transparent {
    ($($(#[$cfg:meta])* [$($generics:tt)*] $outer:ty => $inner:ty;)*) => { $(
        $(#[$cfg])*
        impl<$($generics)*> KeyPart for $outer {
            type Shape = <$inner as KeyPart>::Shape;

            fn render(&self, text: &mut KeyText<'_>) {
                <$inner as KeyPart>::render(self, text);
            }
        }
    )* };
}
transparent! {
    [] String => str;
    [T: KeyPart + ?Sized] &T => T;
    [T: KeyPart + ?Sized] &mut T => T;
    [T: KeyPart + ?Sized] Box<T> => T;
    [T: KeyPart + ?Sized] std::rc::Rc<T> => T;
    [T: KeyPart + ?Sized] std::sync::Arc<T> => T;
    [T: KeyPart + ToOwned + ?Sized] Cow<'_, T> => T;
}

/// Lower case, with hyphens: `67e55044-10b1-426f-9247-bb680e5fe0c8`.
#[cfg(feature = "uuid")]
impl KeyPart for uuid::Uuid {
    type Shape = shape::Uuid;

    fn render(&self, text: &mut KeyText<'_>) {
        let mut digits = Digits::new();
        let bytes = self.as_bytes();
        digits.hex(&bytes[..4]);
        for group in [4..6, 6..8, 8..10, 10..16] {
            digits.push(b'-');
            digits.hex(&bytes[group]);
        }
        text.push_digits(&digits);
    }
}

/// A value under the filter `|display`: written by its own `Display`, which its crate may change.
#[doc(hidden)]
pub struct Displayed<T>(pub T);

impl<T: std::fmt::Display> KeyPart for Displayed<T> {
    type Shape = shape::Text;

    fn render(&self, text: &mut KeyText<'_>) {
        // If `Display` fails, its output so far is the text.
        let _: std::fmt::Result = write!(text, "{}", self.0);
    }
}
