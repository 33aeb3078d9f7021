//! Did a lock's key change since the previous release?
//!
//! While a fleet is half upgraded, old and new processes exclude each other only if they lock the same number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use advisory_pattern::{Comparison, KeySpace, LockedKey, Part, Pattern, Record};

use crate::declared_locks::DeclaredLocks;
use crate::finding::{Finding, Place};
use crate::inventory::{Inventory, Key, keys, path};

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

/// Finds the locks of the previous release whose key this one does not lock any more.
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
    // An expression that the old release did not have can be any key.
    let can_be_any = has_other_expression(new, old);
    let is_changed =
        |site: &&&Site<'_>| site.has_other_space(new) || !can_be_any && site.has_other_key(new);
    let old_site = old.iter().find(is_changed)?;
    let new_site = new.iter().find(|site| site.has_other_key(old));
    // Fewer functions of one path (methods of several types) without a new key: one of them was removed.
    if new_site.is_none() && new.len() < old.len() {
        return None;
    }
    let new_site = new_site.or(new.first())?;
    let (mut was, mut is) = (old_site.written(), new_site.written());
    if was == is {
        // What has changed is the type of a value.
        (was, is) = (old_site.shaped(), new_site.shaped());
    }
    Some(Finding {
        kind: "key-change",
        message: format!("the key of advisory lock `{identity}` has changed from {was} to {is}"),
        places: vec![
            Place::site(new_site.record, None, "has the new key"),
            Place::site(old_site.record, Some(from), "has the old key"),
        ],
        notes: vec![
            "while both releases run, their processes do not exclude each other".to_owned(),
        ],
        help: format!(
            "keep the old key, or take both keys for one release; if no two releases ever run side by side: `--allow-key-change {identity}`"
        ),
    })
}

/// Whether a key of the sites is known only at run time, by an expression that the others do not have.
fn has_other_expression(sites: &[&Site<'_>], others: &[&Site<'_>]) -> bool {
    let others: Vec<&str> = others.iter().flat_map(|site| site.expressions()).collect();
    let mut expressions = sites.iter().flat_map(|site| site.expressions());
    expressions.any(|expression| !others.contains(&expression))
}

impl<'a> Site<'a> {
    fn new(record: &'a Record, declared: &DeclaredLocks<'a>) -> Self {
        let keys = keys(record).into_iter().zip(&record.keys);
        let keys = keys.map(|(key, encoded)| match declared.key(&key) {
            Some((lock, key)) => SiteKey {
                declared: Some(path(lock)),
                ..SiteKey::new(key, lock.keys.last().map_or("", String::as_str), lock)
            },
            None => SiteKey::new(key, encoded, record),
        });
        Self {
            record,
            space: record.key_space().unwrap_or_default(),
            keys: keys.collect(),
        }
    }

    /// Whether the site has a key that none of the others has. Sites share no key if they share no key space.
    fn has_other_key(&self, others: &[&Site<'_>]) -> bool {
        self.has_other_space(others)
            || self.keys.iter().any(|key| {
                key.comparable.is_some() && !others.iter().any(|other| self.shares(key, other))
            })
    }

    fn has_other_space(&self, others: &[&Site<'_>]) -> bool {
        let mut spaces = others
            .iter()
            .map(|other| self.space.comparison(other.space));
        spaces.all(|comparison| comparison == Comparison::Disjoint)
    }

    fn shares(&self, key: &SiteKey<'_>, other: &Site<'_>) -> bool {
        let comparison = self.space.comparison(other.space);
        other.keys.iter().any(|other| key.equals(other, comparison))
    }

    /// The keys that are known only at run time.
    fn expressions(&self) -> impl Iterator<Item = &'a str> {
        let unknown = self.keys.iter().filter(|key| key.comparable.is_none());
        unknown.map(|key| key.key.written)
    }

    /// The keys as they are written, and those of declared locks as these are.
    fn written(&self) -> String {
        self.described(|key| key.written.to_owned())
    }

    /// The keys with the shape of each value.
    fn shaped(&self) -> String {
        self.described(|key| match &key.known {
            Some(LockedKey::Pattern(pattern)) => pattern.to_string(),
            _ => key.written.to_owned(),
        })
    }

    fn described(&self, text: impl Fn(&Key<'_>) -> String) -> String {
        let described = |SiteKey {
                             key, derivation, ..
                         }: &SiteKey<'_>| match key.known {
            _ if key.is_lease => format!("`{}` as a lease", text(key)),
            Some(LockedKey::Pattern(_)) => format!("`{}` by {derivation}", text(key)),
            Some(LockedKey::BigInt(_) | LockedKey::IntInt(..)) | None => {
                format!("`{}`", text(key))
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
            let text = without_names(known.text().into_owned()).to_string();
            let number = match known {
                LockedKey::Pattern(_) => format!("{} {text}", record.derivation),
                LockedKey::BigInt(_) | LockedKey::IntInt(..) => encoded.to_owned(),
            };
            ComparableKey { number, text }
        });
        Self {
            key,
            derivation: &record.derivation,
            declared: None,
            comparable,
        }
    }

    fn equals(&self, other: &Self, comparison: Comparison) -> bool {
        let (Some(here), Some(there)) = (&self.comparable, &other.comparable) else {
            return false;
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

fn without_names(mut pattern: Pattern) -> Pattern {
    for part in &mut pattern.parts {
        if let Part::Placeholder(placeholder) = part {
            placeholder.path = vec!["_".to_owned()];
            placeholder.slice = false;
        }
    }
    pattern
}
