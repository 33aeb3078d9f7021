//! The keys of one call whose number is known only when it runs: `<ids*>`.

use crate::{Error, Key};

/// Collects keys, and refuses none and too many before any SQL is sent.
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

    /// A key for each element of the slice that the pattern calls `slice`.
    pub fn each<E>(
        &mut self,
        slice: &'static str,
        elements: impl Iterator<Item = E>,
        key: impl FnMut(E) -> Key,
    ) {
        let before = self.found.len();
        self.found.extend(elements.map(key));
        if self.found.len() == before {
            self.empty = Some(slice);
        }
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
