//! The keys of a call with a slice in its pattern, `<ids*>`: their number is known at run time.

use crate::{Error, Key};

/// Collects keys, and refuses zero or too many before any SQL is sent.
#[doc(hidden)]
pub struct Keys {
    lock: &'static str,
    max: usize,
    found: Vec<Key>,
    empty: Option<&'static str>,
}

impl Keys {
    #[must_use]
    pub const fn new(lock: &'static str, max: usize) -> Self {
        Self {
            lock,
            max,
            found: Vec::new(),
            empty: None,
        }
    }

    pub fn push(&mut self, key: Key) {
        self.found.push(key);
    }

    /// Adds a key for each element of the slice that the pattern calls `slice`.
    pub fn each<'e, S: Elements + ?Sized>(
        &mut self,
        slice: &'static str,
        elements: &'e S,
        key: impl FnMut(&'e S::Element) -> Key,
    ) {
        let elements = elements.elements();
        if elements.is_empty() {
            self.empty = Some(slice);
        }
        self.found.extend(elements.iter().map(key));
    }

    /// The keys without duplicates, in the order in which they are taken.
    pub fn finish(mut self) -> Result<Vec<Key>, Error> {
        let lock = self.lock.into();
        if let Some(slice) = self.empty {
            return Err(Error::NoKeys { lock, slice });
        }
        self.found.sort_unstable();
        self.found.dedup();
        if self.found.len() > self.max {
            return Err(Error::TooManyKeys {
                lock,
                keys: self.found.len(),
                max: self.max,
            });
        }
        Ok(self.found)
    }
}

#[diagnostic::on_unimplemented(
    message = "`<…*>` takes a slice, and `{Self}` is not one",
    label = "expected a slice, an array or a `Vec`",
    note = "for one value, write the placeholder without `*`; for a set, write `with(ids = set.iter().copied().collect::<Vec<_>>())`"
)]
pub trait Elements {
    type Element;

    fn elements(&self) -> &[Self::Element];
}

impl<T> Elements for [T] {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

impl<T, const N: usize> Elements for [T; N] {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

impl<T> Elements for Vec<T> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

macro_rules! pointers {
    ($($pointer:ty),*) => { $(
        impl<S: Elements + ?Sized> Elements for $pointer {
            type Element = S::Element;

            fn elements(&self) -> &[S::Element] {
                S::elements(self)
            }
        }
    )* };
}
pointers!(&S, &mut S, Box<S>, std::rc::Rc<S>, std::sync::Arc<S>);
