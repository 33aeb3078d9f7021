//! Which declared lock does a site take whose key is an expression, `RoomNight { room, night }`?
//!
//! No type is known here, but its name stands in the expression. Where two locks have that name, or it names two of them, or none,
//! nothing is said.

use std::collections::BTreeMap;

use advisory_pattern::Record;

use crate::inventory::Inventory;

/// The declared locks of an inventory by the names of their types; `None` for a name that two have.
pub(crate) struct Declared<'a>(BTreeMap<&'a str, Option<&'a Record>>);

impl<'a> Declared<'a> {
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

    pub(crate) fn named(&self, expression: &str) -> Option<&'a Record> {
        let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut found = words.filter_map(|word| self.0.get(word).copied());
        let first = found.next()??;
        found.all(|other| other == Some(first)).then_some(first)
    }
}
