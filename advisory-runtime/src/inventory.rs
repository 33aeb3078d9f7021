//! The lock sites of this program, for its own tests.
//!
//! Every use of the attribute, of `#[derive(LockKey)]` and of `lock_key!` leaves a record in the
//! program, even if the function is never called. The compiler reports collisions inside one crate;
//! a test that calls [`assert_no_collisions`] reports those between crates:
//!
//! ```no_run
//! // In a `#[test]` of the program, with `use your_crate as _;` for each crate of which it uses nothing else:
//! advisory_runtime::inventory::assert_no_collisions();
//! ```
//!
//! A crate that only the manifest names is not linked, and its sites are missing here:
//! `use your_crate as _;` links it. A test in `tests/` never sees the sites of `src/main.rs`: put
//! the test there.
//!
//! Leases are sites too, and are compared with each other by the texts of their keys. They never
//! collide with advisory locks, which are numbers, but a lease and an advisory lock of one name are
//! reported. A declared lock can be used as either, and is compared as both.
//!
//! Every `#[derive(Claim)]` leaves a record too: see [`claims`]. Claims have no keys to compare.
//!
//! Sites do not show the order of their calls. Debug builds record it, and a test that calls
//! [`assert_lock_order`] fails if two calls could wait for each other.

use advisory_pattern::SiteCollision;
pub use advisory_pattern::{ClaimRecord as ClaimSite, Permits, Record as Site};
use std::fmt;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub use {
    crate::debug::order::{LockOrder, assert_lock_order, lock_order},
    advisory_pattern::order::{Edge, End},
};

/// The error of reading the sites, or the locks that collide.
#[derive(Debug)]
#[non_exhaustive]
pub enum InventoryError {
    /// The program's own file could not be read.
    Unreadable(std::io::Error),
    /// This version cannot read a record in it.
    Record(advisory_pattern::RecordError),
    /// Locks that can collide: for each pair a text with both places, and a key that both can
    /// render.
    Collisions(Vec<String>),
}

impl fmt::Display for InventoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(_) => {
                f.write_str("can't read the program's own file, which contains its lock sites")
            }
            Self::Record(_) => {
                f.write_str("can't read a record of a lock site or a claim in the program")
            }
            Self::Collisions(found) => f.write_str(&found.join("\n\n")),
        }
    }
}

impl std::error::Error for InventoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(error) => Some(error),
            Self::Record(error) => Some(error),
            Self::Collisions(_) => None,
        }
    }
}

/// Reads the lock sites of the running program from its own file, sorted.
///
/// # Errors
///
/// [`InventoryError::Unreadable`], for example if the file was deleted; [`InventoryError::Record`].
pub fn sites() -> Result<Vec<Site>, InventoryError> {
    Site::find_all(&program()?).map_err(InventoryError::Record)
}

/// Like [`sites`], for the claims of the running program: every `#[derive(Claim)]`.
pub fn claims() -> Result<Vec<ClaimSite>, InventoryError> {
    ClaimSite::find_all(&program()?).map_err(InventoryError::Record)
}

fn program() -> Result<Vec<u8>, InventoryError> {
    let program = std::env::current_exe().and_then(std::fs::read);
    program.map_err(InventoryError::Unreadable)
}

/// Compares the sites of the running program, and returns their number if none collide.
///
/// # Errors
///
/// Those of [`sites`]; [`InventoryError::Collisions`] with every two keys, and two of their sites.
pub fn check() -> Result<usize, InventoryError> {
    compare(&sites()?)
}

fn compare(sites: &[Site]) -> Result<usize, InventoryError> {
    let collisions = advisory_pattern::site_collisions(sites).map_err(InventoryError::Record)?;
    let text = |pair: &SiteCollision<'_>| {
        format!(
            "{}\n --> {}\n --> {}\n  = {}{}\n  = help: {}",
            pair.headline,
            place(pair.here),
            place(pair.there),
            pair.collision,
            more(pair.more),
            pair.advice.text,
        )
    };
    let found: Vec<String> = collisions.iter().map(text).collect();
    if found.is_empty() {
        Ok(sites.len())
    } else {
        Err(InventoryError::Collisions(found))
    }
}

/// Asserts that no locks of the running program can collide: [`check`] for a test.
///
/// # Panics
///
/// If two locks can collide, if the program's own file cannot be read, or if it has no lock site:
/// the test is in the wrong program.
#[expect(clippy::panic, reason = "an assertion of a user's test")]
pub fn assert_no_collisions() {
    match check() {
        Ok(0) => panic!(
            "no lock sites in this test: write `use your_crate as _;`, so that the crate is linked"
        ),
        Ok(_) => {}
        Err(error) => panic!("{error}"),
    }
}

fn more(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "\n  = 1 more site with one of these keys: it collides too".to_owned(),
        _ => format!("\n  = {count} more sites with one of these keys: they collide too"),
    }
}

fn place(site: &Site) -> String {
    format!(
        "{}: {}:{} ({} `{}`)",
        site.krate, site.file, site.line, site.kind, site.function
    )
}

#[cfg(test)]
mod tests {
    use super::{Site, compare};

    #[test]
    fn a_collision_has_both_places_and_a_key() {
        let site = |krate: &str, key: &str| Site {
            kind: "fn".into(),
            written: vec![key.into()],
            keys: vec![format!("pattern {key}")],
            derivation: "sha256".into(),
            function: "book".into(),
            file: "src/lib.rs".into(),
            line: 7,
            krate: krate.into(),
            ..Site::default()
        };
        let meet = [site("bookings", "<x: int>"), site("ledger", "<y: int>")];
        let text = compare(&meet).unwrap_err().to_string();
        for part in [
            "bookings: src/lib.rs:7 (fn `book`)",
            "ledger: src/lib.rs:7",
            "both can render",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
