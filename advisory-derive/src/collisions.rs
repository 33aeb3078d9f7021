//! Collisions of a lock site with the earlier sites of the same crate, found while compiling.
//!
//! One compiler process compiles one crate and expands every attribute on every build, also on an
//! incremental one, so the table is complete. An editor's process outlives edits, and merged
//! doctests are many programs in one crate: there nothing is compared, to avoid false errors. This
//! is early feedback; the complete check reads the artifact.

use crate::args::Args;
use crate::errors::Errors;
use crate::site_facts::{Kind, SiteFacts};
use advisory_pattern::{Guess, Lock, LockForm, LockedKey, Part, Permits, Side, advice};
use proc_macro2::Span;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

struct SiteLock {
    call_site: CallSite,
    lock: Lock,
    /// The text that every key of a pattern starts with.
    prefix: Option<String>,
    written: String,
    guesses: Vec<Guess>,
    /// The word with which a message suggests to start the key.
    word: Option<String>,
    /// True if the site takes it at the node of rows; `None` if it takes none.
    is_at: Option<bool>,
    /// Set if a collision was reported here: the report applies to every site of this form.
    reported: Option<LockForm>,
}

/// The place of a site. Spans cannot be stored: using one after its expansion panics.
#[derive(Clone, PartialEq, Eq)]
struct CallSite {
    // The fields that differ most often come first: a thousand sites need half a million
    // comparisons.
    line: usize,
    column: usize,
    /// ``fn `settle` ``; distinguishes functions that one `macro_rules!` emits with one span.
    item: String,
    file: String,
    /// A compiler process has one crate, but some tools run several in one process.
    krate: String,
}

static SITE_LOCKS: Mutex<Vec<SiteLock>> = Mutex::new(Vec::new());

/// Reports the site's locks that can collide with those of an earlier site, and adds them to the
/// table.
pub(crate) fn check(site: &SiteFacts, args: &Args, errors: &mut Errors) {
    let Some(call_site) = CallSite::of(site.span(), site.item()) else {
        return;
    };
    let (name, derivation) = (args.name(), args.derivation());
    let allowed = args.allow_overlap.iter().map(|(other, _)| other.value());
    let allowed: Vec<String> = allowed.collect();
    let mut earlier_locks = SITE_LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    // An outer macro can expand the same tokens twice.
    earlier_locks.retain(|earlier| earlier.call_site != call_site);
    let is_here = |other: &&SiteLock| other.call_site.krate == call_site.krate;
    let is_other = |other: &&SiteLock| is_here(other) && other.call_site != call_site;
    for known in &site.keys {
        let Some(key) = known.key.clone() else {
            continue;
        };
        let prefix = prefix(&key);
        let lock = Lock::new(key, derivation, name.clone(), allowed.clone())
            .within(site.key_space(derivation))
            .with_permits(args.permits().unwrap_or(Permits::ONE));
        let mut site_lock = SiteLock {
            call_site: call_site.clone(),
            lock,
            prefix,
            written: known.written.clone(),
            guesses: known.guesses.clone(),
            word: (!matches!(site.kind, Kind::Macro)).then(|| site.name.clone()),
            is_at: site.kind.is_at(),
            reported: None,
        };
        let found = earlier_locks
            .iter()
            .filter(|earlier| {
                // Two locks of one name are compared whatever their keys are.
                name.is_some()
                    || can_be_equal(site_lock.prefix.as_deref(), earlier.prefix.as_deref())
            })
            .filter(is_other)
            .find_map(|earlier| Some((earlier, site_lock.lock.collision(&earlier.lock)?)));
        if let Some((earlier, collision)) = found {
            let form = site_lock.lock.form();
            let mut here = earlier_locks.iter().filter(is_here);
            if let Some(first) = here.find(|other| other.reported.as_ref() == Some(&form)) {
                let is_same = |other: &&SiteLock| {
                    other.written == site_lock.written && other.lock.name() == name.as_deref()
                };
                let count = earlier_locks.iter().filter(is_here).filter(is_same).count() + 1;
                errors.at(known.span, repeated(first, &site_lock, count));
                site_lock.reported = Some(form);
                earlier_locks.push(site_lock);
                continue;
            }
            let there = &earlier.call_site;
            let (one, other) = (site_lock.side(), earlier.side());
            let others = earlier_locks.iter().filter(is_other);
            let others = others.filter(|other| other.call_site != *there);
            let others = others.map(|other| &other.lock);
            let advice = advice(&collision, &one, &other, others);
            errors.at(
                known.span,
                format_args!(
                    "{}\n --> {} ({}) is the other lock\n  = {collision}\n  = help: {}",
                    collision.headline(&one, &other),
                    there.place(),
                    there.item,
                    advice.text,
                ),
            );
            site_lock.reported = Some(form);
        } else if let Some(there) = earlier_locks
            .iter()
            .filter(|earlier| site_lock.is_at_another_node(earlier))
            .find(is_other)
        {
            errors.at(known.span, at_another_node(there, &site_lock));
        }
        earlier_locks.push(site_lock);
    }
}

/// The message for another site of a key that has collided: without proof and advice, so that many
/// sites cost no more to read and to compile than one.
fn repeated(first: &SiteLock, again: &SiteLock, count: usize) -> String {
    let (item, place) = (&first.call_site.item, first.call_site.place());
    format!(
        "`{}` collides here too, as at {item} ({place})\n  = help: so far {count} sites have this key: change each of them as that message says",
        again.written
    )
}

fn at_another_node(there: &SiteLock, here: &SiteLock) -> String {
    let (item, place) = (&there.call_site.item, there.call_site.place());
    let (first, second) = if here.is_at == Some(true) {
        ("with", "without")
    } else {
        ("without", "with")
    };
    format!(
        "`{}` is locked {first} `at` here, and {second} it there\n --> {place} ({item}) is the other lock\n  \
         = help: for a distributed table, these are locks at two nodes: write `at` at both, or at neither",
        here.written
    )
}

impl SiteLock {
    /// Returns whether another site takes the same lock, but only one of them at the node of rows.
    fn is_at_another_node(&self, other: &Self) -> bool {
        matches!((self.is_at, other.is_at), (Some(here), Some(there)) if here != there)
            && self.lock.name().is_some()
            && self.lock.name() == other.lock.name()
            && self.written == other.written
    }

    fn side(&self) -> Side<'_> {
        Side {
            lock: &self.lock,
            written: &self.written,
            item: &self.call_site.item,
            word: self.word.as_deref(),
            guesses: &self.guesses,
        }
    }
}

fn prefix(key: &LockedKey) -> Option<String> {
    let LockedKey::Pattern(pattern) = key else {
        return None;
    };
    match pattern.parts.first()? {
        Part::Text(text) => Some(text.clone()),
        Part::Placeholder(_) => None,
    }
}

/// Returns whether keys with these prefixes can be equal. Most sites differ here, which costs one
/// optimised comparison of bytes: unlike the standard library, this crate is compiled without
/// optimisation when a crate is only checked.
fn can_be_equal(here: Option<&str>, there: Option<&str>) -> bool {
    let (Some(here), Some(there)) = (here, there) else {
        return true;
    };
    let (here, there) = (here.as_bytes(), there.as_bytes());
    let length = here.len().min(there.len());
    here[..length] == there[..length]
}

impl CallSite {
    fn place(&self) -> String {
        format!("{}:{}:{}", self.file, self.line, self.column)
    }

    /// `None` where sites cannot be compared.
    fn of(span: Span, item: String) -> Option<Self> {
        if !is_compiler() {
            return None;
        }
        let span = span.unwrap();
        let file = span.file();
        if file.is_empty() || file.contains("doctest_bundle") {
            return None;
        }
        let krate = std::env::var("CARGO_CRATE_NAME").unwrap_or_default();
        Some(Self {
            krate,
            file,
            line: span.line(),
            column: span.column(),
            item,
        })
    }
}

/// Returns whether this process compiles one crate and then exits.
fn is_compiler() -> bool {
    static IS_COMPILER: OnceLock<bool> = OnceLock::new();
    *IS_COMPILER.get_or_init(|| {
        let program = std::env::current_exe().unwrap_or_default();
        let stem = program.file_stem().unwrap_or_default();
        ["rustc", "clippy-driver", "rustdoc", "miri"]
            .map(Path::new)
            .iter()
            .any(|known| *known == Path::new(stem))
    })
}
