//! Did a lock's key change since the release before?
//!
//! While a fleet is half upgraded, old and new processes have to lock the same number, or they do not exclude each other.

use std::collections::BTreeMap;
use std::path::Path;

use advisory_pattern::{Comparison, KeySpace, LockedKey, Part, Pattern, Record};

use crate::finding::{Finding, Place};
use crate::inventory::{Inventory, keys, path};

/// What makes a lock the same lock in two releases: its name, or its function.
type Sites<'a> = BTreeMap<String, Vec<&'a Record>>;

/// Finds the locks of the release before whose key this one no longer takes.
pub(crate) fn changes(
    inventory: &Inventory,
    before: &Inventory,
    from: &Path,
    allowed: &[String],
) -> Vec<Finding> {
    let now = by(inventory, |site| Some(path(site)));
    let named = by(inventory, |site| site.name.clone());
    let mut findings = Vec::new();
    for (name, old) in by(before, |site| site.name.clone()) {
        let new = named.get(&name).or_else(|| now.get(&path(old[0])));
        findings.extend(change(&name, &old, new, from, allowed));
    }
    let unnamed = |site: &Record| site.name.is_none().then(|| path(site));
    for (function, old) in by(before, unnamed) {
        findings.extend(change(&function, &old, now.get(&function), from, allowed));
    }
    findings
}

fn by(inventory: &Inventory, what: impl Fn(&Record) -> Option<String>) -> Sites<'_> {
    let mut sites = Sites::new();
    for site in &inventory.sites {
        if let Some(what) = what(site) {
            sites.entry(what).or_default().push(site);
        }
    }
    sites
}

fn change(
    what: &str,
    old: &[&Record],
    new: Option<&Vec<&Record>>,
    from: &Path,
    allowed: &[String],
) -> Option<Finding> {
    // A lock that is gone excludes nobody, nor does the release before need it to.
    let new = new?;
    let is_declared = |site: &&Record| {
        allowed.contains(&path(site)) || site.name.as_ref().is_some_and(|it| allowed.contains(it))
    };
    if allowed.iter().any(|name| name == what) || new.iter().any(is_declared) {
        return None;
    }
    let was = old.iter().find(|site| has_no_equal(site, new))?;
    let is = new.iter().find(|site| has_no_equal(site, old));
    // Fewer functions of one path (methods of several types) and no other key: one of them was removed.
    if is.is_none() && new.len() < old.len() {
        return None;
    }
    let is = is.or(new.first())?;
    Some(Finding {
        kind: "key-change",
        message: format!(
            "the key of advisory lock `{what}` has changed: {} to {}",
            written(was),
            written(is)
        ),
        places: vec![
            Place::site(is, None, "has the new key"),
            Place::site(was, Some(from), "has the old key"),
        ],
        notes: vec![
            "processes of the two releases would not exclude each other while both run".to_owned(),
        ],
        help: format!(
            "keep the old key, or take both keys for one release; if no two releases ever run side by side: `--allow-key-change {what}`"
        ),
    })
}

/// Whether the site has a key that none of the others has.
fn has_no_equal(site: &Record, others: &[&Record]) -> bool {
    let others: Vec<Form> = others.iter().flat_map(|other| forms(other)).collect();
    let mut forms = forms(site).into_iter();
    forms.any(|form| !others.iter().any(|other| form.is(other)))
}

/// A key as far as it decides who excludes whom: not what placeholders are called, nor how a number is derived where there is none.
#[derive(Default)]
struct Form {
    space: KeySpace,
    /// As an advisory lock's.
    number: String,
    /// As a lease's.
    text: String,
}

impl Form {
    fn is(&self, other: &Self) -> bool {
        match self.space.comparison(other.space) {
            Comparison::Numbers => self.number == other.number,
            Comparison::Texts => self.text == other.text,
            Comparison::Disjoint => false,
        }
    }
}

/// The site's keys, and before them its key space alone: two sites have to share it also where no key is known before run time.
fn forms(site: &Record) -> Vec<Form> {
    let space = site.key_space().unwrap_or_default();
    let keys = keys(site);
    let forms = keys.iter().zip(&site.keys).filter_map(|(key, raw)| {
        // What is only known at run time can't be compared.
        let known = key.known.as_ref()?;
        let text = nameless(known.text().into_owned()).to_string();
        let number = match known {
            LockedKey::Pattern(_) => format!("{} {text}", site.derivation),
            _ => raw.clone(),
        };
        Some(Form {
            space,
            number,
            text,
        })
    });
    let alone = Form {
        space,
        ..Form::default()
    };
    std::iter::once(alone).chain(forms).collect()
}

fn nameless(mut pattern: Pattern) -> Pattern {
    for part in &mut pattern.parts {
        if let Part::Placeholder(placeholder) = part {
            placeholder.path = vec!["_".to_owned()];
            placeholder.slice = false;
        }
    }
    pattern
}

fn written(site: &Record) -> String {
    let keys: Vec<String> = keys(site)
        .iter()
        .map(|key| match key.known {
            _ if key.is_lease => format!("`{}` as a lease", key.written),
            Some(LockedKey::Pattern(_)) => format!("`{}` by {}", key.written, site.derivation),
            _ => format!("`{}`", key.written),
        })
        .collect();
    keys.join(", ")
}
