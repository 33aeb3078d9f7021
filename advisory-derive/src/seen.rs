//! The lock sites that this compiler process has seen, so that two which can collide are an error at the later one.
//!
//! One process compiles one crate and expands every attribute again on every build, also an incremental one, so the table is
//! complete. An editor's process lives over edits, and merged doctests are many programs in one crate: there nothing is said, so
//! that it never lies. This is early feedback; the proof is in the artifact.

use crate::errors::Errors;
use crate::tokens::split_at_commas;
use advisory_pattern::{Derivation, KeySpace, Lock, LockedKey, Part};
use proc_macro2::{Span, TokenStream, TokenTree};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// One lock of one site.
struct Seen {
    place: Place,
    lock: Lock,
    /// The text that every key of a pattern starts with.
    start: Option<String>,
    /// The key as written.
    key: String,
}

/// Where a site is. Spans cannot be kept: one that outlives its expansion panics.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    // What differs most often stands first: a thousand sites are half a million comparisons.
    line: usize,
    column: usize,
    /// `fn settle`; tells apart functions that one `macro_rules!` made of one span.
    item: String,
    file: String,
    /// One process is one crate, but for tools that run several.
    krate: String,
}

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

/// One key as written, as far as it is known, and the span that an error quotes.
pub(crate) struct Known {
    pub(crate) written: String,
    pub(crate) key: Option<LockedKey>,
    pub(crate) span: Span,
}

/// What an attribute or a declared lock says of sharing.
#[derive(Clone, Default)]
pub(crate) struct Sharing {
    pub(crate) name: Option<String>,
    /// The other locks' names in `allow_overlap("other-name", "reason")`.
    pub(crate) allowed: Vec<String>,
}

impl Sharing {
    fn lock(&self, key: LockedKey, derivation: Derivation, space: KeySpace) -> Lock {
        Lock::new(key, derivation, self.name.clone(), self.allowed.clone()).within(space)
    }
}

/// Notes a site's locks, and complains about those that can collide with an earlier site's. `word` names the site, if
/// anything does.
pub(crate) fn note(
    keys: &[Known],
    space: KeySpace,
    derivation: Derivation,
    sharing: &Sharing,
    item: String,
    word: Option<&str>,
    errors: &mut Errors,
) {
    let Some(first) = keys.first() else { return };
    let Some(place) = Place::of(first.span, item) else {
        return;
    };
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    // The same tokens expanded twice, by an outer macro that looked at them first.
    seen.retain(|earlier| earlier.place != place);
    for known in keys {
        let Some(key) = known.key.clone() else {
            continue;
        };
        let start = start(&key);
        let lock = sharing.lock(key, derivation, space);
        let found = seen
            .iter()
            .filter(|earlier| {
                // A name is compared whatever the keys are.
                sharing.name.is_some() || may_meet(start.as_deref(), earlier.start.as_deref())
            })
            .find_map(|earlier| {
                let is_other = earlier.place.krate == place.krate && earlier.place != place;
                is_other.then(|| Some((earlier, lock.collision(&earlier.lock)?)))?
            });
        if let Some((earlier, collision)) = found {
            let there = &earlier.place;
            errors.at(
                known.span,
                format_args!(
                    "{}\n --> {}:{}:{} ({}) is the other lock\n  = {collision}\n  = help: {}",
                    collision.headline(&known.written, &earlier.key),
                    there.file,
                    there.line,
                    there.column,
                    there.item,
                    collision.help(&known.written, word),
                ),
            );
        }
        let (place, key) = (place.clone(), known.written.clone());
        seen.push(Seen {
            place,
            lock,
            start,
            key,
        });
    }
}

fn start(key: &LockedKey) -> Option<String> {
    let LockedKey::Pattern(pattern) = key else {
        return None;
    };
    match pattern.parts.first() {
        Some(Part::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Whether what keys start with leaves it open that two are one. Most sites are told apart here, at the price of one comparison
/// that is compiled with optimisation: this crate is not, where a crate is checked.
fn may_meet(here: Option<&str>, there: Option<&str>) -> bool {
    let (Some(here), Some(there)) = (here, there) else {
        return true;
    };
    let (here, there) = (here.as_bytes(), there.as_bytes());
    let length = here.len().min(there.len());
    here[..length] == there[..length]
}

impl Place {
    /// `None` where the table would lie.
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

/// Whether this process compiles one crate and ends.
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

/// `42`, `-42`, or `(7, tenant_no)` as far as it is digits.
pub(crate) fn fixed(expression: &TokenStream) -> Option<LockedKey> {
    let tokens: Vec<TokenTree> = expression.clone().into_iter().collect();
    if let [TokenTree::Group(group)] = tokens.as_slice()
        && group.delimiter() == proc_macro2::Delimiter::Parenthesis
    {
        let parts = split_at_commas(group.stream());
        let [first, second] = parts.as_slice() else {
            return None;
        };
        let narrow = |part| match number(part) {
            Some(number) => i32::try_from(number).ok().map(Some),
            // A constant is one number, and which is not known here: nothing is said of it.
            None => (!names_constant(part)).then_some(None),
        };
        return Some(LockedKey::IntInt(narrow(first)?, narrow(second)?));
    }
    number(expression).map(LockedKey::BigInt)
}

fn names_constant(part: &TokenStream) -> bool {
    part.clone().into_iter().any(|token| match token {
        TokenTree::Ident(word) => word.to_string().starts_with(char::is_uppercase),
        TokenTree::Group(group) => names_constant(&group.stream()),
        _ => false,
    })
}

fn number(expression: &TokenStream) -> Option<i64> {
    match syn::parse2(expression.clone()).ok()? {
        syn::Lit::Int(number) => number.base10_parse().ok(),
        _ => None,
    }
}
