//! Compares the locks of two releases: their keys, numbers of permits and modes.
//!
//! While a fleet is half upgraded, old and new processes exclude each other only if they lock the same numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use advisory_pattern::{
    Comparison, KeySpace, LockedKey, Part, Pattern, Permits, Record, encode_key,
};

use crate::declared_locks::DeclaredLocks;
use crate::finding::{Finding, Place};
use crate::inventory::{Inventory, Key, keys, path};
use crate::key_values;

/// A lock site with its keys, of which declared locks have their patterns.
struct Site<'a> {
    record: &'a Record,
    space: KeySpace,
    keys: Vec<SiteKey<'a>>,
}

struct SiteKey<'a> {
    key: Key<'a>,
    derivation: &'a str,
    /// The path of the declared lock that the key's expression names.
    declared: Option<String>,
    /// What the key as it is written takes its values from; `None` if that cannot be seen.
    values: Option<Vec<String>>,
    /// Whether it is a key for each element of a slice.
    is_slice: bool,
    /// `None` if the key is known only at run time.
    comparable: Option<ComparableKey>,
}

/// The part of a key that decides which processes exclude each other: without the names of placeholders.
struct ComparableKey {
    /// For comparison as an advisory lock.
    number: String,
    /// For comparison as a lease.
    text: String,
}

/// Lock sites by what identifies a lock in two releases: its name, or its function.
type Group<'a> = BTreeMap<String, Vec<&'a Site<'a>>>;

/// What a site of the new release has otherwise than one of the old release, the least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    Mode,
    Permits,
    Key,
}

/// Finds the locks of the previous release that this one takes otherwise.
pub(crate) fn find(
    inventory: &Inventory,
    old: &Inventory,
    from: &Path,
    allowed: &[String],
) -> Vec<Finding> {
    let (old, new) = (sites(old), sites(inventory));
    let mut findings = Vec::new();
    let mut changed_names = BTreeSet::new();
    let name = |site: &Site<'_>| site.record.name.clone();
    let by_name = group_by(&new, name);
    for (name, old) in group_by(&old, name) {
        let new = by_name.get(&name);
        if let Some(finding) = new.and_then(|new| change(&name, &old, new, from, allowed)) {
            findings.push(finding);
            changed_names.insert(name);
        }
    }
    let function = |site: &Site<'_>| {
        let name = site.record.name.as_ref();
        // One finding for a lock is enough.
        let is_reported = name.is_some_and(|name| changed_names.contains(name));
        (!is_reported).then(|| path(site.record))
    };
    let by_function = group_by(&new, |site| Some(path(site.record)));
    for (function, old) in group_by(&old, function) {
        let new = by_function.get(&function);
        findings.extend(new.and_then(|new| change(&function, &old, new, from, allowed)));
    }
    findings
}

fn sites(inventory: &Inventory) -> Vec<Site<'_>> {
    let declared = DeclaredLocks::of(inventory);
    let sites = inventory.sites.iter();
    sites.map(|site| Site::new(site, &declared)).collect()
}

fn group_by<'a>(
    sites: &'a [Site<'a>],
    identity: impl Fn(&Site<'_>) -> Option<String>,
) -> Group<'a> {
    let mut group = Group::new();
    for site in sites {
        if let Some(identity) = identity(site) {
            group.entry(identity).or_default().push(site);
        }
    }
    group
}

/// A lock that was removed is not compared: it excludes no process, and the previous release does not need it to.
fn change(
    identity: &str,
    old: &[&Site<'_>],
    new: &[&Site<'_>],
    from: &Path,
    allowed: &[String],
) -> Option<Finding> {
    let is_allowed = |site: &&Site<'_>| {
        let name = site.record.name.as_ref();
        allowed.contains(&path(site.record)) || name.is_some_and(|name| allowed.contains(name))
    };
    if old.iter().chain(new).any(is_allowed) {
        return None;
    }
    // Methods of several types can have one path. Each has what it had, or one of them was removed.
    let (mut old, mut new) = (old.to_vec(), new.to_vec());
    remove_pairs(&mut old, &mut new, Site::is_written_as);
    remove_pairs(&mut old, &mut new, |old, new| old.difference(new).is_none());
    let old_site = old.first()?;
    let differences = new
        .iter()
        .filter_map(|new| Some((old_site.difference(new)?, *new)));
    let (difference, new_site) = differences.min_by_key(|(difference, _)| *difference)?;
    Some(Finding {
        kind: "key-change",
        message: difference.message(identity, old_site, new_site),
        places: vec![
            Place::site(new_site.record, None, difference.role(true)),
            Place::site(old_site.record, Some(from), difference.role(false)),
        ],
        notes: vec![difference.note().to_owned()],
        help: difference.help(identity),
    })
}

/// Removes each old site together with one new site that is the same.
fn remove_pairs<'s, 'a>(
    old: &mut Vec<&'s Site<'a>>,
    new: &mut Vec<&'s Site<'a>>,
    is_same: impl Fn(&Site<'a>, &Site<'a>) -> bool,
) {
    old.retain(|old| {
        let same = new.iter().position(|new| is_same(old, new));
        same.map(|at| new.remove(at)).is_none()
    });
}

impl Difference {
    fn message(self, identity: &str, old: &Site<'_>, new: &Site<'_>) -> String {
        let (what, was, is) = match self {
            Self::Mode => ("mode", old.record.mode.clone(), new.record.mode.clone()),
            Self::Permits => (
                "number of permits",
                old.permits().to_string(),
                new.permits().to_string(),
            ),
            Self::Key => {
                // What has changed can be the type of a value, or which values they are.
                let texts = [Site::written, Site::shaped, Site::valued];
                let mut texts = texts.iter().map(|text| (text(old), text(new)));
                let (was, is) = texts
                    .find(|(was, is)| was != is)
                    .unwrap_or_else(|| (old.written(), new.written()));
                ("key", was, is)
            }
        };
        format!("the {what} of advisory lock `{identity}` has changed from {was} to {is}")
    }

    const fn role(self, is_new: bool) -> &'static str {
        match (self, is_new) {
            (Self::Mode, true) => "has the new mode",
            (Self::Mode, false) => "has the old mode",
            (Self::Permits, true) => "has the new number",
            (Self::Permits, false) => "has the old number",
            (Self::Key, true) => "has the new key",
            (Self::Key, false) => "has the old key",
        }
    }

    const fn note(self) -> &'static str {
        match self {
            Self::Mode => {
                "while both releases run, calls of the release with the shared mode run at the same time"
            }
            Self::Permits => {
                "each permit is a key: while both releases run, as many can hold the lock as the larger number allows"
            }
            Self::Key => "while both releases run, their processes do not exclude each other",
        }
    }

    fn help(self, identity: &str) -> String {
        match self {
            Self::Mode | Self::Permits => {
                format!("if that is intended: `--allow-key-change {identity}`")
            }
            Self::Key => format!(
                "keep the old key, or take both keys for one release; if no two releases ever run side by side: `--allow-key-change {identity}`"
            ),
        }
    }
}

impl<'a> Site<'a> {
    fn new(record: &'a Record, declared: &DeclaredLocks<'a>) -> Self {
        let keys = keys(record).into_iter().zip(&record.keys);
        let keys = keys.map(|(key, encoded)| match declared.key(&key) {
            Some((lock, declared)) => {
                let pattern = declared.known.as_ref().map(LockedKey::text);
                let values = pattern.and_then(|it| key_values::of_declared(&it, key.written));
                SiteKey {
                    declared: Some(path(lock)),
                    values,
                    ..SiteKey::new(declared, lock.keys.last().map_or("", String::as_str), lock)
                }
            }
            None => SiteKey::new(key, encoded, record),
        });
        Self {
            record,
            space: record.key_space().unwrap_or_default(),
            keys: keys.collect(),
        }
    }

    /// Whether nothing that is compared was written otherwise.
    fn is_written_as(&self, new: &Self) -> bool {
        self.difference(new).is_none()
            && self.keys.len() == new.keys.len()
            && self.function_mode() == new.function_mode()
            && self
                .keys
                .iter()
                .zip(&new.keys)
                .all(|(old, new)| old.values == new.values)
    }

    /// What the new release's site has otherwise; `None` if it takes all the keys of this one.
    fn difference(&self, new: &Self) -> Option<Difference> {
        if !self.is_taken_by(new) {
            return Some(Difference::Key);
        }
        if !self.permits().can_equal(new.permits()) {
            return Some(Difference::Permits);
        }
        // Functions of one name can have different modes.
        let modes = self.function_mode().zip(new.function_mode());
        modes
            .is_some_and(|(old, new)| old.0 == new.0 && old.1 != new.1)
            .then_some(Difference::Mode)
    }

    fn permits(&self) -> &'a Permits {
        self.record.permits.as_ref().unwrap_or(&Permits::ONE)
    }

    /// The function and its mode; `None` in an inventory without modes.
    fn function_mode(&self) -> Option<(String, &'a str)> {
        let mode = self.record.mode.as_str();
        (!mode.is_empty()).then(|| (path(self.record), mode))
    }

    /// Whether the new release's site takes each key of this one, of the same values.
    fn is_taken_by(&self, new: &Self) -> bool {
        let comparison = self.space.comparison(new.space);
        if comparison == Comparison::Disjoint {
            return false;
        }
        let mut free: Vec<&SiteKey<'_>> = new.keys.iter().collect();
        let mut missing: Vec<&SiteKey<'_>> = self.keys.iter().collect();
        let mut values = Vec::new();
        // The same values first: two keys of one form can be of different values.
        for is_same_value in [true, false] {
            missing.retain(|old| {
                let is_equal = |new: &SiteKey<'_>| old.equals(new, comparison);
                // A slice locks several keys, so one key is less.
                let is_fewer = old.is_slice && free.iter().filter(|new| is_equal(new)).count() == 1;
                let found = free.iter().position(|new| {
                    is_equal(new)
                        && (old.values == new.values || !is_same_value)
                        && (new.is_slice || !is_fewer)
                        && !key_values::have_moved(&[&values[..], &old.pairs(new)].concat())
                });
                let Some(at) = found else {
                    return true;
                };
                values.extend(old.pairs(free[at]));
                if !free[at].is_slice || old.is_slice {
                    free.remove(at);
                }
                false
            });
        }
        let is_unknown = |key: &&&SiteKey<'_>| key.comparable.is_none();
        let expressions: Vec<&SiteKey<'_>> = free.iter().filter(is_unknown).copied().collect();
        let are_rearranged = missing.iter().filter(is_unknown).any(|old| {
            let mut new = expressions.iter();
            new.any(|new| key_values::are_rearranged(old.key.written, new.key.written))
        });
        // An expression can be any key, and several.
        let unknown = missing.iter().filter(is_unknown).count();
        let has_room = unknown == missing.len() && unknown <= free.len();
        !are_rearranged && (!expressions.is_empty() || has_room)
    }

    /// The keys as they are written, and those of declared locks as these are.
    fn written(&self) -> String {
        self.described(|key| key.key.written.to_owned())
    }

    /// The keys with the shape of each value.
    fn shaped(&self) -> String {
        self.described(|key| match &key.key.known {
            Some(known) if key.key.is_derived() => known.text().to_string(),
            _ => key.key.written.to_owned(),
        })
    }

    /// The keys with what each value is taken from.
    fn valued(&self) -> String {
        self.described(|key| match (&key.key.known, &key.values) {
            (Some(known), Some(values)) if key.key.is_derived() => {
                with_values(known.text().into_owned(), values).to_string()
            }
            _ => key.key.written.to_owned(),
        })
    }

    fn described(&self, text: impl Fn(&SiteKey<'_>) -> String) -> String {
        let described = |site_key: &SiteKey<'_>| {
            let SiteKey {
                key, derivation, ..
            } = site_key;
            let text = text(site_key);
            match key.known {
                _ if key.is_lease => format!("`{text}` as a lease"),
                _ if key.is_derived() => format!("`{text}` by {derivation}"),
                _ => format!("`{text}`"),
            }
        };
        let keys: Vec<String> = self.keys.iter().map(described).collect();
        keys.join(", ")
    }
}

impl<'a> SiteKey<'a> {
    /// A key that `record` has in this encoding.
    fn new(key: Key<'a>, encoded: &str, record: &'a Record) -> Self {
        let comparable = key.known.as_ref().map(|known| {
            let text = known.text().without_names().to_string();
            let number = match known.derived() {
                Some(_) => {
                    let form = encode_key(Some(&known.without_names()));
                    format!("{} {form}", record.derivation)
                }
                None => encoded.to_owned(),
            };
            ComparableKey { number, text }
        });
        let values = key.known.as_ref().and_then(|known| match known {
            LockedKey::Pattern(pattern) | LockedKey::IntPattern(_, pattern) => {
                Some(key_values::of_pattern(pattern, &record.with))
            }
            known => key_values::of_pair(known, key.written),
        });
        let is_slice = key.known.as_ref().is_some_and(|known| {
            let text = known.text();
            text.placeholders().any(|placeholder| placeholder.slice)
        });
        Self {
            key,
            derivation: &record.derivation,
            declared: None,
            values,
            is_slice,
            comparable,
        }
    }

    /// The values of both keys that have the same place; none if one of them is a slice, or its values cannot be seen.
    fn pairs(&self, new: &Self) -> Vec<(String, String)> {
        match (&self.values, &new.values) {
            (Some(old), Some(new_values)) if self.is_slice == new.is_slice => {
                key_values::pairs(old, new_values)
            }
            _ => Vec::new(),
        }
    }

    fn equals(&self, other: &Self, comparison: Comparison) -> bool {
        let (here, there) = match (&self.comparable, &other.comparable) {
            (Some(here), Some(there)) => (here, there),
            (None, None) => {
                let text = |key: &Self| key_values::without_space(key.key.written);
                return text(self) == text(other);
            }
            _ => return false,
        };
        // If the declared lock's own key has changed, that is a finding of its declaration.
        let is_same_lock = self.declared.is_some() && self.declared == other.declared;
        match comparison {
            Comparison::Numbers => is_same_lock || here.number == there.number,
            Comparison::Texts => is_same_lock || here.text == there.text,
            Comparison::Disjoint => false,
        }
    }
}

fn with_values(mut pattern: Pattern, values: &[String]) -> Pattern {
    let placeholders = pattern.parts.iter_mut().filter_map(|part| match part {
        Part::Placeholder(placeholder) => Some(placeholder),
        Part::Text(_) => None,
    });
    for (placeholder, value) in placeholders.zip(values) {
        placeholder.path = vec![value.clone()];
    }
    pattern
}
