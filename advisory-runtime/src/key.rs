//! Lock keys, and their computation from the values of a key pattern.

#[cfg(any(feature = "chrono", feature = "time", feature = "jiff"))]
mod date_time;
mod digits;
mod key_part;
pub(crate) mod known;
pub(crate) mod rendered;
pub mod shape;
pub mod well_known;

pub use key_part::{Displayed, KeyPart};

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
use advisory_pattern::permit_key;
use advisory_pattern::{Derivation, Filter, Hasher, escape, pair_text};
use digits::Digits;
use std::fmt;

/// The number, or the two numbers, given to `pg_advisory_*`.
///
/// PostgreSQL has two key spaces that do not overlap: `bigint` keys and `(int, int)` keys. Keys are
/// ordered by space and number. A call takes several keys in that order, so that two calls that
/// share keys never deadlock.
///
/// ```
/// use advisory_runtime::Key;
///
/// assert_eq!(Key::from((7, 1)), Key::IntInt(7, 1));
/// assert!(Key::BigInt(42) < Key::IntInt(0, 0), "the spaces do not overlap");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A key of the `bigint` key space.
    BigInt(i64),
    /// A key of the `(int, int)` key space.
    IntInt(i32, i32),
}

impl Key {
    /// The keys of the permits of a lock on this key; the first is this key itself.
    #[cfg(any(feature = "diesel-async", feature = "postgres"))]
    pub(crate) fn permits(self, permits: u32) -> Vec<Self> {
        let text = self.to_string();
        let others = (2..=permits).map(|permit| permit_key(&text, permit).into());
        std::iter::once(self).chain(others).collect()
    }
}

impl From<i64> for Key {
    fn from(key: i64) -> Self {
        Self::BigInt(key)
    }
}

impl From<(i32, i32)> for Key {
    fn from((first, second): (i32, i32)) -> Self {
        Self::IntInt(first, second)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BigInt(key) => write!(f, "{key}"),
            Self::IntInt(first, second) => write!(f, "({first}, {second})"),
        }
    }
}

/// The writer for the text of a [`KeyPart`].
///
/// It escapes `%` and `:` (`%25`, `%3A`), so that each `:` in a rendered key is one of the pattern,
/// and two different argument lists never share a key. It also applies the placeholder's filters.
/// [`KeyPart`] has an example.
pub struct KeyText<'a> {
    out: &'a mut dyn FnMut(&str),
    filters: &'a [Filter],
    /// Spaces that `trim` holds back: written if more text follows, dropped at the end.
    spaces: usize,
    started: bool,
}

impl KeyText<'_> {
    /// Appends text.
    pub fn push_str(&mut self, text: &str) {
        if !self.filters.contains(&Filter::Trim) {
            return self.unescaped(text);
        }
        let text = if self.started {
            text
        } else {
            text.trim_start_matches(' ')
        };
        let body = text.trim_end_matches(' ');
        if !body.is_empty() {
            self.started = true;
            for _ in 0..std::mem::take(&mut self.spaces) {
                self.unescaped(" ");
            }
            self.unescaped(body);
        }
        self.spaces += text.len() - body.len();
    }

    /// Appends digits, which need no escape. Searching them would cost a third of the hash.
    pub(crate) fn push_digits(&mut self, digits: &Digits) {
        if self.filters.contains(&Filter::Trim) || self.filters.contains(&Filter::Lower) {
            self.push_str(digits.as_str());
        } else {
            (self.out)(digits.as_str());
        }
    }

    fn unescaped(&mut self, text: &str) {
        let (raw, out) = (self.filters.contains(&Filter::Raw), &mut *self.out);
        let mut escaped = |text: &str| {
            if raw {
                out(text);
            } else {
                escape::escape(text, &mut *out);
            }
        };
        if self.filters.contains(&Filter::Lower) {
            escape::lower(text, escaped);
        } else {
            escaped(text);
        }
    }
}

impl fmt::Write for KeyText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

/// A lock key: a number, two numbers, or a declared lock.
///
/// `#[derive(LockKey)]` declares a lock once, as a type that several functions and a unit test can
/// use:
///
/// ```
/// use advisory_runtime::{LockKey, lock_key};
///
/// #[derive(LockKey)]
/// #[lock_key("account:<id>", name = "account")]
/// struct AccountLock {
///     id: i64,
/// }
///
/// assert_eq!(AccountLock { id: 7 }.rendered(), "account:7");
/// let id = 7;
/// assert_eq!(AccountLock { id }.key(), lock_key!("account:<id: int>", name = "account"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock key",
    label = "expected an `i64`, a pair `(i32, i32)`, a `lock_key!(\"…\")`, or a type with `#[derive(LockKey)]`",
    note = "to lock a text or several values, write a key pattern: in an attribute `key = \"account:<id>\"`, elsewhere `lock_key!(\"account:<id>\")`",
    note = "to keep a deployed pair, write `key = (7, \"<id>\")` for one with a hash, or compute both halves as `i32`"
)]
pub trait LockKey {
    /// Returns the number, or the two numbers, given to `pg_advisory_*`.
    fn key(&self) -> Key;

    /// Returns the rendered key of a declared lock, from which its number is derived; the digits of
    /// a number.
    fn rendered(&self) -> String {
        self.key().to_string()
    }

    /// Returns the key pattern of a declared lock, for messages; empty for a number.
    fn pattern(&self) -> &'static str {
        ""
    }
}

impl<K: LockKey + ?Sized> LockKey for &K {
    fn key(&self) -> Key {
        K::key(self)
    }

    fn rendered(&self) -> String {
        K::rendered(self)
    }

    fn pattern(&self) -> &'static str {
        K::pattern(self)
    }
}

macro_rules! numbers {
    ($($number:ty => |$key:ident| $value:expr;)*) => { $(
        impl LockKey for $number {
            fn key(&self) -> Key {
                let $key = *self;
                $value
            }
        }
    )* };
}
numbers! {
    Key => |key| key;
    i64 => |key| Key::BigInt(key);
    i32 => |key| Key::BigInt(key.into());
    u32 => |key| Key::BigInt(key.into());
    (i32, i32) => |key| Key::IntInt(key.0, key.1);
}

/// A value's text, with nothing escaped.
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub(crate) fn raw_text<T: KeyPart + ?Sized>(value: &T) -> String {
    let mut text = KeyWriter::text_only();
    text.render(value, &[Filter::Raw]);
    text.into_text()
}

/// Renders one key: into its derivation, and into a text where one is needed.
#[doc(hidden)]
pub struct KeyWriter {
    /// `None` for the text alone.
    hasher: Option<Hasher>,
    /// `Some` for the text alone, and while rendered keys are shown.
    rendered: Option<String>,
}

impl KeyWriter {
    #[must_use]
    pub fn new(derivation: Derivation) -> Self {
        Self {
            hasher: Some(Hasher::new(derivation)),
            rendered: rendered::is_kept().then(String::new),
        }
    }

    #[must_use]
    pub const fn text_only() -> Self {
        Self {
            hasher: None,
            rendered: Some(String::new()),
        }
    }

    pub fn text(&mut self, text: &str) {
        if let Some(hasher) = &mut self.hasher {
            hasher.write(text);
        }
        if let Some(rendered) = &mut self.rendered {
            rendered.push_str(text);
        }
    }

    /// Writes a placeholder's value. The bound proves that it renders within the shape with which
    /// the pattern was checked.
    pub fn part<S: shape::Shape, T: KeyPart<Shape: shape::Within<S>> + ?Sized>(
        &mut self,
        value: &T,
    ) {
        self.filtered::<S, T>(value, &[]);
    }

    /// Writes text and a placeholder's value, in one call, which compiles faster than two.
    pub fn shaped<S: shape::Shape, T: KeyPart<Shape: shape::Within<S>> + ?Sized>(
        &mut self,
        before: &str,
        value: &T,
    ) {
        self.any(before, value);
    }

    pub fn any<T: KeyPart + ?Sized>(&mut self, before: &str, value: &T) {
        self.text(before);
        self.render(value, &[]);
    }

    pub fn filtered<S: shape::Shape, T: KeyPart<Shape: shape::Within<S>> + ?Sized>(
        &mut self,
        value: &T,
        filters: &[Filter],
    ) {
        self.render(value, filters);
    }

    fn render<T: KeyPart + ?Sized>(&mut self, value: &T, filters: &[Filter]) {
        let mut out = |text: &str| self.text(text);
        value.render(&mut KeyText {
            out: &mut out,
            filters,
            spaces: 0,
            started: false,
        });
    }

    #[must_use]
    pub fn finish(self) -> Key {
        // A writer of the text alone is never finished.
        let key = Key::BigInt(self.hasher.map_or(0, Hasher::finish));
        if let Some(text) = self.rendered {
            rendered::remember(key, text);
        }
        key
    }

    /// The pair of this first half and a second half that is derived from the text.
    #[must_use]
    pub fn finish_pair(self, first: i32) -> Key {
        let key = Key::IntInt(first, self.hasher.map_or(0, Hasher::finish_half));
        if let Some(text) = self.rendered {
            rendered::remember(key, pair_text(first, &text));
        }
        key
    }

    #[must_use]
    pub fn into_pair_text(self, first: i32) -> String {
        pair_text(first, &self.into_text())
    }

    #[must_use]
    pub fn into_text(self) -> String {
        self.rendered.unwrap_or_default()
    }
}
