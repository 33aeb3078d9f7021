//! The lock sites of this program, for its own tests.
//!
//! Every use of the attribute, of `#[derive(LockKey)]` and of `lock_key!` leaves a record in the program, also where the
//! function is never called. The compiler tells of collisions inside one crate; a test that calls [`assert_no_collisions`] tells
//! of those between crates:
//!
//! ```no_run
//! // In a `#[test]` of the program, with `use your_crate as _;` where it uses nothing else of it:
//! advisory_runtime::inventory::assert_no_collisions();
//! ```
//!
//! Leases are among the sites, and compared with each other by the texts of their keys. They never meet advisory locks, which are
//! numbers, so one name for a lease and an advisory lock is told too. A declared lock can be used as either and is compared as both.
//!
//! What no list of sites can tell is the order in which they are called: debug builds record it, and a test that calls
//! [`assert_lock_order`] fails where two calls could wait for each other.
//!
//! A crate that the program names in its manifest and nowhere in its source is not linked, so its sites are not here: a test of
//! `tests/` that does nothing else writes `use your_crate as _;`. It never sees the sites of `src/main.rs`; put the test there.

pub use advisory_pattern::Record as Site;
use advisory_pattern::SiteCollision;
use std::fmt;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub use {
    crate::debug::order::{LockOrder, assert_lock_order, lock_order},
    advisory_pattern::order::{Edge, End},
};

/// Why the sites could not be read, or do not go together.
#[derive(Debug)]
#[non_exhaustive]
pub enum InventoryError {
    /// The program's own file could not be read.
    Unreadable(std::io::Error),
    /// A record in it is none that this version can read.
    Record(advisory_pattern::RecordError),
    /// Locks that can collide, as a text that names both places and a key that both can render.
    Collisions(Vec<String>),
}

impl fmt::Display for InventoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(_) => {
                write!(f, "the program's own file can't be read for its lock sites")
            }
            Self::Record(_) => write!(
                f,
                "the program holds a lock site's record that can't be read"
            ),
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

/// Reads the lock sites of the running program, sorted, out of its own file.
///
/// # Errors
///
/// [`InventoryError::Unreadable`], such as when the file was deleted since; [`InventoryError::Record`].
pub fn sites() -> Result<Vec<Site>, InventoryError> {
    let program = std::env::current_exe().and_then(std::fs::read);
    Site::find_all(&program.map_err(InventoryError::Unreadable)?).map_err(InventoryError::Record)
}

/// Finds every two sites of the running program whose locks can collide; how many sites there are, when none do.
///
/// # Errors
///
/// Those of [`sites`]; [`InventoryError::Collisions`] with every pair.
pub fn check() -> Result<usize, InventoryError> {
    compare(&sites()?)
}

fn compare(sites: &[Site]) -> Result<usize, InventoryError> {
    let collisions = advisory_pattern::site_collisions(sites).map_err(InventoryError::Record)?;
    let text = |pair: &SiteCollision<'_>| {
        format!(
            "{}\n --> {}\n --> {}\n  = {}\n  = help: {}",
            pair.headline,
            place(pair.here),
            place(pair.there),
            pair.collision,
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

/// [`check`], for a test.
///
/// # Panics
///
/// When two locks can collide, when the program's own file cannot be read, and when there is no lock site in it: then the test
/// looks at the wrong program.
#[expect(clippy::panic, reason = "an assertion of a user's test")]
pub fn assert_no_collisions() {
    match check() {
        Ok(0) => panic!(
            "this test holds no lock site: write `use your_crate as _;` so that the crate is linked"
        ),
        Ok(_) => {}
        Err(error) => panic!("{error}"),
    }
}

fn place(site: &Site) -> String {
    let Site {
        krate,
        file,
        line,
        kind,
        function,
        ..
    } = site;
    format!("{krate}: {file}:{line} ({kind} `{function}`)")
}

#[cfg(test)]
mod tests {
    use super::{InventoryError, Site, compare};
    use crate::{Key, LockKey};
    use advisory_pattern::LockedKey;

    #[test]
    fn leases_are_told_apart_from_advisory_locks() {
        let site = |function: &str, scope: &str, name: Option<&str>| Site {
            kind: if scope == "none" { "struct" } else { "fn" }.into(),
            name: name.map(Into::into),
            written: vec!["job:<id>".into()],
            keys: vec!["pattern job:<id: int>".into()],
            derivation: "sha256".into(),
            scope: scope.into(),
            function: function.into(),
            krate: "jobs".into(),
            ..Site::default()
        };
        let (lock, lease) = (site("run", "xact", None), site("watch", "lease", None));
        assert!(compare(&[lock, lease.clone()]).is_ok());
        let told = |sites: &[Site]| match compare(sites) {
            Err(InventoryError::Collisions(found)) => found.concat(),
            other => unreachable!("{other:?}"),
        };
        let text = told(&[lease.clone(), site("poll", "lease", None)]);
        assert!(text.starts_with("lease keys can collide"), "{text}");
        let text = told(&[lease, site("JobLock", "none", None)]);
        assert!(text.starts_with("lease keys can collide"), "{text}");
        let named = |function, scope| site(function, scope, Some("job"));
        let text = told(&[named("run", "session"), named("watch", "lease")]);
        assert!(
            text.starts_with("advisory lock `job` is two locks"),
            "{text}"
        );
        let both = [named("JobLock", "none"), named("watch", "lease")];
        assert!(compare(&both).is_ok());
    }

    /// A lease's number is compared as a text, and has to be the one that is rendered.
    #[test]
    fn a_number_is_compared_as_the_text_that_it_renders_as() {
        for (key, known) in [
            (Key::BigInt(-42), LockedKey::BigInt(-42)),
            (Key::IntInt(7, -3), LockedKey::IntInt(Some(7), Some(-3))),
        ] {
            assert_eq!(key.rendered(), known.text().to_string());
        }
        let open = LockedKey::IntInt(Some(7), None).text().to_string();
        let shown = Key::IntInt(7, -3).rendered();
        assert_eq!(open.replace("<second: int>", "-3"), shown);
    }

    #[test]
    fn a_collision_is_told_with_both_places_and_a_key() {
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
        let apart = [site("bookings", "a:<x: int>"), site("ledger", "b:<x: int>")];
        assert!(compare(&apart).is_ok());
        let meet = [site("bookings", "<x: int>"), site("ledger", "<y: int>")];
        let Err(InventoryError::Collisions(found)) = compare(&meet) else {
            unreachable!("both render 1")
        };
        let [text] = found.as_slice() else {
            unreachable!("one pair: {found:?}")
        };
        for part in [
            "bookings: src/lib.rs:7 (fn `book`)",
            "ledger: src/lib.rs:7",
            "both can render",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
