//! Which values a placeholder can render, and as which text.
//!
//! The texts are written here and not by anybody's `Display`: a key that changes with a dependency's release un-locks a
//! fleet that is half upgraded.

use crate::{KeyText, shape};
use std::borrow::Cow;
use std::fmt::Write;

/// A value that can stand in a lock key.
///
/// Two different values must never render the same text. There is no implementation for floats (`0.1 + 0.2` is another
/// key than `0.3`) and none for `Option` (`None` has no text that is not also a value's): say what you mean in
/// `with(…)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be part of an advisory lock key",
    label = "a placeholder of the key pattern renders this value",
    note = "a key can hold integers, `bool`, `char`, strings, and with the features `uuid` and `chrono` their `Uuid` and `NaiveDate`",
    note = "for a newtype name the field in the pattern, `<tenant_id.0>`; for an `Option` or a float pass a value that has one text"
)]
pub trait KeyPart {
    /// The set of texts that [`render`](Self::render) can write.
    type Shape: shape::Within<shape::Text> + shape::Within<shape::Raw>;

    /// Writes the value's one text.
    fn render(&self, text: &mut KeyText<'_>);
}

macro_rules! integers {
    ($shape:ident: $($int:ty),*) => { $(
        impl KeyPart for $int {
            type Shape = shape::$shape;

            fn render(&self, text: &mut KeyText<'_>) {
                // Writing to a `KeyText` cannot fail.
                let _: std::fmt::Result = write!(text, "{self}");
            }
        }
    )* };
}
integers!(Int: i8, i16, i32, i64, i128, isize);
integers!(Uint: u8, u16, u32, u64, u128, usize);

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

impl KeyPart for String {
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
        let value = self.as_u128();
        let group = |shift: u32, digits: u32| (value >> shift) & ((1 << (4 * digits)) - 1);
        // Writing to a `KeyText` cannot fail.
        let _: std::fmt::Result = write!(
            text,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            group(96, 8),
            group(80, 4),
            group(64, 4),
            group(48, 4),
            group(0, 12)
        );
    }
}

/// `2025-01-15`; a year before 0 or after 9999 has a sign: `-0044-03-15`, `+10000-01-01`.
#[cfg(feature = "chrono")]
impl KeyPart for chrono::NaiveDate {
    type Shape = shape::Date;

    fn render(&self, text: &mut KeyText<'_>) {
        use chrono::Datelike;

        let (year, month, day) = (self.year(), self.month(), self.day());
        // Writing to a `KeyText` cannot fail.
        let _: std::fmt::Result = if (0..=9999).contains(&year) {
            write!(text, "{year:04}-{month:02}-{day:02}")
        } else {
            write!(text, "{year:+05}-{month:02}-{day:02}")
        };
    }
}

/// A value under the filter `|display`: by its own `Display`, which its crate may change.
#[doc(hidden)]
pub struct Displayed<T>(pub T);

impl<T: std::fmt::Display> KeyPart for Displayed<T> {
    type Shape = shape::Text;

    fn render(&self, text: &mut KeyText<'_>) {
        // A `Display` that fails has written what it could.
        let _: std::fmt::Result = write!(text, "{}", self.0);
    }
}
