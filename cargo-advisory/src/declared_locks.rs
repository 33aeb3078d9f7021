//! Finds the declared lock of a site with an expression as its key, such as
//! `RoomNight { room, night }`.
//!
//! The type of the expression is not known here, but the expression contains its name. The lock is
//! not found if two locks have this name, or if the expression names several locks or none.

use std::collections::BTreeMap;

use advisory_pattern::Record;

use crate::inventory::{Inventory, Key, keys};

/// The declared locks of an inventory by the names of their types; `None` for a name that two types
/// have.
pub(crate) struct DeclaredLocks<'a>(BTreeMap<&'a str, Option<&'a Record>>);

impl<'a> DeclaredLocks<'a> {
    pub(crate) fn of(inventory: &'a Inventory) -> Self {
        let mut names = BTreeMap::new();
        for site in inventory.sites.iter().filter(|site| site.kind == "struct") {
            let only = names.entry(site.function.as_str()).or_insert(Some(site));
            if *only != Some(site) {
                *only = None;
            }
        }
        Self(names)
    }

    /// Returns the declared lock that a key's expression names, and the key of this lock in the
    /// scope of the site.
    pub(crate) fn key(&self, expression: &Key<'_>) -> Option<(&'a Record, Key<'a>)> {
        if expression.known.is_some() {
            return None;
        }
        let lock = self.named(expression.written)?;
        Some((lock, keys(lock).pop()?.in_scope_of(expression)))
    }

    fn named(&self, expression: &str) -> Option<&'a Record> {
        let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut named = words.filter_map(|word| self.0.get(word).copied());
        let first = named.next()??;
        named.all(|other| other == Some(first)).then_some(first)
    }
}
