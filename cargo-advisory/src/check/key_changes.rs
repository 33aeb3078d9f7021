//! Compares the locks of two releases: their keys, numbers of permits, modes, and `keep`.
//!
//! While a fleet is half upgraded, old and new processes exclude each other only if they lock equal
//! numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use advisory_pattern::{
    Comparison, KeySpace, LockedKey, Part, Pattern, Permits, Record, Shape, encode_key,
};

use crate::finding::{ADVICE, Finding, Place};
use crate::inventory::{DeclaredLocks, Inventory, Key, keys, path};
use crate::key_values;
use crate::text::joined;

/// A lock site with its keys. A key that is a declared lock has the pattern of that lock.
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
    /// The expressions of the values, as they are written; `None` if they cannot be seen.
    values: Option<Vec<String>>,
    /// True if each element of a slice has a key.
    is_slice: bool,
}

/// Lock sites by the identity of a lock in two releases: its name, or its function.
type Group<'a> = BTreeMap<String, Vec<&'a Site<'a>>>;

/// A difference between a site of the new release and one of the old release. The least one is
/// first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    Keep,
    Mode,
    Permits,
    Key,
}

/// An earlier release, with which the program is compared.
pub(crate) struct Release<'a> {
    pub(crate) old: &'a Inventory,
    pub(crate) from: &'a Path,
    /// The names and paths of `--allow-key-change`.
    pub(crate) allowed: &'a [String],
}

/// Finds the locks that this release takes in another way than the previous one.
pub(crate) fn find(inventory: &Inventory, release: &Release<'_>) -> Vec<Finding> {
    let (old, new) = (sites(release.old), sites(inventory));
    let mut findings = Vec::new();
    let mut changed_names = BTreeSet::new();
    let name = |site: &Site<'_>| site.record.name.clone();
    let by_name = group_by(&new, name);
    for (name, old) in group_by(&old, name) {
        let new = by_name.get(&name);
        if let Some(finding) = new.and_then(|new| change(&name, &old, new, release)) {
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
        findings.extend(new.and_then(|new| change(&function, &old, new, release)));
    }
    findings.extend(replacements(&old, &new, release));
    findings.extend(unknown_types(&old));
    findings
}

/// Finds locks without a name that may have been renamed together with their key: the function no
/// longer exists, and its module has a new one with values of equal shapes in its key.
fn replacements(old: &[Site<'_>], new: &[Site<'_>], release: &Release<'_>) -> Vec<Finding> {
    // A declared lock is compared where it is used.
    let is_missing = |site: &&Site<'_>, sites: &[Site<'_>]| {
        let (record, its_path) = (site.record, path(site.record));
        let is_it = |other: &Record| {
            path(other) == its_path || record.name.is_some() && other.name == record.name
        };
        record.kind != "struct" && !sites.iter().any(|other| is_it(other.record))
    };
    let mut added: Vec<&Site<'_>> = new.iter().filter(|site| is_missing(site, old)).collect();
    let mut findings = Vec::new();
    for gone in old.iter().filter(|site| is_missing(site, new)) {
        // Another site still takes its key.
        if new.iter().any(|site| gone.difference(site).is_none()) {
            continue;
        }
        let is_close = |site: &&Site<'_>| {
            site.record.module == gone.record.module && site.shapes() == gone.shapes()
        };
        let Some(at) = added.iter().position(is_close) else {
            continue;
        };
        let site = added.remove(at);
        let (was, is) = (path(gone.record), path(site.record));
        if release.allowed.contains(&was) || release.allowed.contains(&is) {
            continue;
        }
        findings.push(Finding {
            kind: "key-change",
            message: format!(
                "advisory lock `{was}` with the key {} is gone, and `{is}` with the key {} is new",
                gone.written(),
                site.written()
            ),
            places: vec![
                Place::site(site.record, None, "is new"),
                Place::site(gone.record, Some(release.from), "is gone"),
            ],
            notes: vec![
                "if the one was renamed to the other: while both releases run, their processes do not exclude each other".to_owned(),
            ],
            help: format!(
                "give the lock a `name` that both releases have, and it is compared by that; if they are different locks: \
                 `--allow-key-change {is}`"
            ),
        });
    }
    findings
}

/// Names the keys with values whose types no inventory has: fields, if the pattern does not give
/// their shape.
fn unknown_types(sites: &[Site<'_>]) -> Option<Finding> {
    let mut unknown: Vec<(&Site<'_>, String)> = Vec::new();
    for site in sites {
        for written in &site.record.written {
            let pattern = advisory_pattern::parse(written).ok();
            let placeholders = pattern.iter().flat_map(Pattern::placeholders);
            let fields = placeholders.filter(|one| one.path.len() > 1 && one.shape.is_none());
            unknown.extend(fields.map(|field| (site, field.name())));
        }
    }
    let (site, name) = unknown.first()?;
    let others = match unknown.len() - 1 {
        0 => String::new(),
        1 => ", and that of another key".to_owned(),
        others => format!(", and those of {others} others"),
    };
    Some(Finding {
        kind: ADVICE,
        message: format!(
            "a change of the type of `<{name}>` in `{}` would not be found{others}",
            path(site.record)
        ),
        places: vec![Place::site(site.record, None, "")],
        notes: vec![
            "the attribute cannot see the type of a field, so the inventory does not have it; with another type an equal value can be \
             another text, and another key"
                .to_owned(),
        ],
        help: format!("write its shape, such as `<{name}: timestamp>`: then another type does not compile"),
    })
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

/// The change of a lock. A lock that was removed is not compared.
fn change(
    identity: &str,
    old: &[&Site<'_>],
    new: &[&Site<'_>],
    Release { from, allowed, .. }: &Release<'_>,
) -> Option<Finding> {
    let is_allowed = |site: &&Site<'_>| {
        let name = site.record.name.as_ref();
        allowed.contains(&path(site.record)) || name.is_some_and(|name| allowed.contains(name))
    };
    if old.iter().chain(new).any(is_allowed) {
        return None;
    }
    // Methods of several types can have one path. Those that are unchanged are left out.
    let (mut old, mut new) = (old.to_vec(), new.to_vec());
    remove_pairs(&mut old, &mut new, Site::is_written_as);
    remove_pairs(&mut old, &mut new, |old, new| old.difference(new).is_none());
    let old_site = old.first()?;
    let new = new.iter();
    let differences = new.filter_map(|new| Some((old_site.difference(new)?, *new)));
    let (difference, new_site) = differences.min_by_key(|(difference, _)| *difference)?;
    let (noun, was, is) = difference.values(old_site, new_site);
    Some(Finding {
        kind: "key-change",
        message: format!("the {noun} of advisory lock `{identity}` has changed from {was} to {is}"),
        places: vec![
            Place::site(new_site.record, None, &format!("has the new {noun}")),
            Place::site(old_site.record, Some(from), &format!("has the old {noun}")),
        ],
        notes: vec![difference.note().to_owned()],
        help: difference.help(identity),
    })
}

/// Removes each old site together with one equal new site.
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
    /// The noun for it, and the value in each release.
    fn values(self, old: &Site<'_>, new: &Site<'_>) -> (&'static str, String, String) {
        let keep = |site: &Site<'_>| match &site.record.keep {
            Some(keep) => format!("`{keep}`"),
            None => "none".to_owned(),
        };
        match self {
            Self::Keep => ("`keep`", keep(old), keep(new)),
            Self::Mode => ("mode", old.record.mode.clone(), new.record.mode.clone()),
            Self::Permits => (
                "number of permits",
                old.permits().to_string(),
                new.permits().to_string(),
            ),
            Self::Key => {
                // The change can be the type of a value, or the choice of the values.
                let texts = [Site::written, Site::shaped, Site::valued];
                let mut texts = texts.iter().map(|text| (text(old), text(new)));
                let (was, is) = texts
                    .find(|(was, is)| was != is)
                    .unwrap_or_else(|| (old.written(), new.written()));
                ("key", was, is)
            }
        }
    }

    const fn note(self) -> &'static str {
        match self {
            Self::Keep => {
                "while both releases run, work that the release without `keep` has completed is done again, by either of them"
            }
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
        let intended = match self {
            Self::Keep | Self::Mode | Self::Permits => "if that is intended",
            Self::Key => {
                "keep the old key, or take both keys for one release; if no two releases ever run side by side"
            }
        };
        format!("{intended}: `--allow-key-change {identity}`")
    }
}

impl<'a> Site<'a> {
    fn new(record: &'a Record, declared: &DeclaredLocks<'a>) -> Self {
        let keys = keys(record).into_iter();
        let keys = keys.map(|key| match declared.key(&key) {
            Some((lock, declared)) => {
                let pattern = declared.known.as_ref().map(LockedKey::text);
                let values = pattern.and_then(|it| key_values::of_declared(&it, key.written));
                SiteKey {
                    declared: Some(path(lock)),
                    values,
                    ..SiteKey::new(declared, lock)
                }
            }
            None => SiteKey::new(key, record),
        });
        Self {
            record,
            space: record.key_space().unwrap_or_default(),
            keys: keys.collect(),
        }
    }

    fn is_written_as(&self, new: &Self) -> bool {
        let mut keys = self.keys.iter().zip(&new.keys);
        self.difference(new).is_none()
            && self.keys.len() == new.keys.len()
            && self.function_mode() == new.function_mode()
            && keys.all(|(old, new)| old.values == new.values)
    }

    /// `None` if the new site takes all the keys of this one.
    fn difference(&self, new: &Self) -> Option<Difference> {
        if !self.is_taken_by(new) {
            return Some(Difference::Key);
        }
        if !self.permits().can_equal(new.permits()) {
            return Some(Difference::Permits);
        }
        // Functions of one name can have different modes.
        let modes = self.function_mode().zip(new.function_mode());
        if modes.is_some_and(|(old, new)| old.0 == new.0 && old.1 != new.1) {
            return Some(Difference::Mode);
        }
        let (old, new) = (&self.record.keep, &new.record.keep);
        (old.is_some() != new.is_some()).then_some(Difference::Keep)
    }

    fn permits(&self) -> &'a Permits {
        self.record.permits.as_ref().unwrap_or(&Permits::ONE)
    }

    fn function_mode(&self) -> Option<(String, &'a str)> {
        let mode = self.record.mode.as_str();
        (!mode.is_empty()).then(|| (path(self.record), mode))
    }

    /// Returns `true` if the new release's site takes each key of this one, with equal values.
    fn is_taken_by(&self, new: &Self) -> bool {
        let comparison = self.space.comparison(new.space);
        if comparison == Comparison::Disjoint {
            return false;
        }
        let mut free: Vec<&SiteKey<'_>> = new.keys.iter().collect();
        let mut missing: Vec<&SiteKey<'_>> = self.keys.iter().collect();
        let mut values = Vec::new();
        // Keys with equal values are matched first: two keys of one form can have different values.
        for is_same_value in [true, false] {
            missing.retain(|old| {
                let is_equal = |new: &SiteKey<'_>| old.equals(new, comparison);
                // A slice locks several keys, so one key is fewer.
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
        let is_unknown = |key: &&&SiteKey<'_>| key.key.known.is_none();
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

    fn shapes(&self) -> Vec<Option<Shape>> {
        let keys = self.keys.iter().filter_map(|key| key.key.known.as_ref());
        let texts: Vec<_> = keys.map(LockedKey::text).collect();
        let placeholders = texts.iter().flat_map(|text| text.placeholders());
        placeholders.map(|placeholder| placeholder.shape).collect()
    }

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

    fn valued(&self) -> String {
        self.described(|key| match (&key.key.known, &key.values) {
            (Some(known), Some(values)) if key.key.is_derived() => {
                with_values(known.text().into_owned(), values).to_string()
            }
            _ => key.key.written.to_owned(),
        })
    }

    fn described(&self, text: impl Fn(&SiteKey<'_>) -> String) -> String {
        let described = |of: &SiteKey<'_>| match of.key.known {
            _ if of.key.is_lease => format!("`{}` as a lease", text(of)),
            _ if of.key.is_derived() => format!("`{}` by {}", text(of), of.derivation),
            _ => format!("`{}`", text(of)),
        };
        joined(self.keys.iter().map(described), ", ")
    }
}

impl<'a> SiteKey<'a> {
    fn new(key: Key<'a>, record: &'a Record) -> Self {
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
        }
    }

    /// The values of both keys at equal places; none if only one key is a slice, or if values
    /// cannot be seen.
    fn pairs(&self, new: &Self) -> Vec<(String, String)> {
        let (Some(old), Some(new_values)) = (&self.values, &new.values) else {
            return Vec::new();
        };
        if self.is_slice == new.is_slice {
            key_values::pairs(old, new_values)
        } else {
            Vec::new()
        }
    }

    /// Returns `true` if processes with these keys exclude each other. The names of placeholders do
    /// not matter.
    fn equals(&self, other: &Self, comparison: Comparison) -> bool {
        let (here, there) = match (&self.key.known, &other.key.known) {
            (Some(here), Some(there)) => (here, there),
            (None, None) => {
                let text = |key: &Self| key_values::without_space(key.key.written);
                return text(self) == text(other);
            }
            _ => return false,
        };
        // A change of the declared lock's own key is a finding at its declaration.
        let is_same_lock = self.declared.is_some() && self.declared == other.declared;
        let text = |key: &LockedKey| key.text().without_names().to_string();
        match comparison {
            Comparison::Numbers => is_same_lock || self.number(here) == other.number(there),
            Comparison::Texts => is_same_lock || text(here) == text(there),
            Comparison::Disjoint => false,
        }
    }

    /// What decides which number the key becomes.
    fn number(&self, known: &LockedKey) -> String {
        let key = encode_key(Some(&known.without_names()));
        match known.derived() {
            Some(_) => format!("{} {key}", self.derivation),
            None => key,
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
