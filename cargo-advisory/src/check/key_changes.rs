//! Did a lock's key change since the previous release?
//!
//! While a fleet is half upgraded, old and new processes exclude each other only if they lock the same number.

use std::collections::BTreeMap;
use std::path::Path;

use advisory_pattern::{Comparison, KeySpace, LockedKey, Part, Pattern, Record};

use crate::finding::{Finding, Place};
use crate::inventory::{Inventory, Key, keys, path};

/// Lock sites by what identifies a lock in two releases: its name, or its function.
type Sites<'a> = BTreeMap<String, Vec<&'a Record>>;

/// Finds the locks of the previous release whose key this one does not lock any more.
pub(crate) fn find(
    inventory: &Inventory,
    old: &Inventory,
    from: &Path,
    allowed: &[String],
) -> Vec<Finding> {
    let by_function = group_by(inventory, |site| Some(path(site)));
    let by_name = group_by(inventory, |site| site.name.clone());
    let mut findings = Vec::new();
    for (name, old) in group_by(old, |site| site.name.clone()) {
        let new = by_name
            .get(&name)
            .or_else(|| by_function.get(&path(old[0])));
        findings.extend(change(&name, &old, new, from, allowed));
    }
    let unnamed = |site: &Record| site.name.is_none().then(|| path(site));
    for (function, old) in group_by(old, unnamed) {
        let new = by_function.get(&function);
        findings.extend(change(&function, &old, new, from, allowed));
    }
    findings
}

fn group_by(inventory: &Inventory, identity: impl Fn(&Record) -> Option<String>) -> Sites<'_> {
    let mut sites = Sites::new();
    for site in &inventory.sites {
        if let Some(identity) = identity(site) {
            sites.entry(identity).or_default().push(site);
        }
    }
    sites
}

fn change(
    identity: &str,
    old: &[&Record],
    new: Option<&Vec<&Record>>,
    from: &Path,
    allowed: &[String],
) -> Option<Finding> {
    // A lock that was removed excludes no process, and the previous release does not need it to.
    let new = new?;
    let is_allowed = |site: &&Record| {
        allowed.contains(&path(site)) || site.name.as_ref().is_some_and(|it| allowed.contains(it))
    };
    if allowed.iter().any(|name| name == identity) || new.iter().any(is_allowed) {
        return None;
    }
    let old_site = old.iter().find(|site| has_other_key(site, new))?;
    let new_site = new.iter().find(|site| has_other_key(site, old));
    // Fewer functions of one path (methods of several types) without a new key: one of them was removed.
    if new_site.is_none() && new.len() < old.len() {
        return None;
    }
    let new_site = new_site.or(new.first())?;
    let (mut was, mut is) = (written(old_site), written(new_site));
    if was == is {
        // What has changed is the type of a value.
        (was, is) = (shaped(old_site), shaped(new_site));
    }
    Some(Finding {
        kind: "key-change",
        message: format!("the key of advisory lock `{identity}` has changed from {was} to {is}"),
        places: vec![
            Place::site(new_site, None, "has the new key"),
            Place::site(old_site, Some(from), "has the old key"),
        ],
        notes: vec![
            "while both releases run, their processes do not exclude each other".to_owned(),
        ],
        help: format!(
            "keep the old key, or take both keys for one release; if no two releases ever run side by side: `--allow-key-change {identity}`"
        ),
    })
}

/// Whether the site has a key that none of the others has.
fn has_other_key(site: &Record, others: &[&Record]) -> bool {
    let others: Vec<ComparableKey> = others.iter().flat_map(|other| keys_of(other)).collect();
    let mut keys = keys_of(site).into_iter();
    keys.any(|key| !others.iter().any(|other| key.equals(other)))
}

/// The part of a key that decides which processes exclude each other: without the names of placeholders.
#[derive(Default)]
struct ComparableKey {
    space: KeySpace,
    /// For comparison as an advisory lock.
    number: String,
    /// For comparison as a lease.
    text: String,
}

impl ComparableKey {
    fn equals(&self, other: &Self) -> bool {
        match self.space.comparison(other.space) {
            Comparison::Numbers => self.number == other.number,
            Comparison::Texts => self.text == other.text,
            Comparison::Disjoint => false,
        }
    }
}

/// The site's keys, after an empty key for its key space: two sites must share the space even if no key is known before run time.
fn keys_of(site: &Record) -> Vec<ComparableKey> {
    let space = site.key_space().unwrap_or_default();
    let keys = keys(site);
    let known = keys.iter().zip(&site.keys).filter_map(|(key, raw)| {
        // A key that is known only at run time cannot be compared.
        let known = key.known.as_ref()?;
        let text = without_names(known.text().into_owned()).to_string();
        let number = match known {
            LockedKey::Pattern(_) => format!("{} {text}", site.derivation),
            LockedKey::BigInt(_) | LockedKey::IntInt(..) => raw.clone(),
        };
        Some(ComparableKey {
            space,
            number,
            text,
        })
    });
    let space_only = ComparableKey {
        space,
        ..ComparableKey::default()
    };
    std::iter::once(space_only).chain(known).collect()
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

/// The keys as they are written.
fn written(site: &Record) -> String {
    described(site, |key| key.written.to_owned())
}

/// The keys with the shape of each value.
fn shaped(site: &Record) -> String {
    described(site, |key| match &key.known {
        Some(LockedKey::Pattern(pattern)) => pattern.to_string(),
        _ => key.written.to_owned(),
    })
}

fn described(site: &Record, text: impl Fn(&Key<'_>) -> String) -> String {
    let keys: Vec<String> = keys(site)
        .iter()
        .map(|key| match key.known {
            _ if key.is_lease => format!("`{}` as a lease", text(key)),
            Some(LockedKey::Pattern(_)) => format!("`{}` by {}", text(key), site.derivation),
            Some(LockedKey::BigInt(_) | LockedKey::IntInt(..)) | None => {
                format!("`{}`", text(key))
            }
        })
        .collect();
    keys.join(", ")
}
