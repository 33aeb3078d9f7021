//! The lock sites and claims of several files, and the names of a site and its keys for people.

use std::collections::BTreeMap;

use advisory_pattern::{ClaimRecord, Derivation, KeySpace, LockedKey, Record, decode_key};

use crate::text::{joined, plural};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub(crate) sites: Vec<Record>,
    pub(crate) claims: Vec<ClaimRecord>,
}

impl Inventory {
    /// Orders the records by their places, each of them once.
    pub(crate) fn sorted(mut self) -> Self {
        self.sites.sort_unstable();
        self.sites.dedup();
        self.sites.sort_by(|a, b| place(a).cmp(&place(b)));
        self.claims.sort_unstable();
        self.claims.dedup();
        self.claims
            .sort_by(|a, b| claim_place(a).cmp(&claim_place(b)));
        self
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.sites.extend(other.sites);
        self.claims.extend(other.claims);
        self.sorted()
    }

    /// Counts the sites of each crate, and the claims. A crate that the linker left out is missing.
    pub(crate) fn summary(&self) -> String {
        let mut crates: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for site in &self.sites {
            *crates.entry((&site.krate, &site.version)).or_default() += 1;
        }
        let counts = crates.iter();
        let counts = counts.map(|((name, version), sites)| format!("{name} {version} ({sites})"));
        let claims = match (self.claims.len(), self.sites.len()) {
            (0, 0) => " (a crate that the source never names is not linked)".to_owned(),
            (0, _) => String::new(),
            (some, _) => format!("; {}", plural(some, "claim")),
        };
        let sites = match self.sites.len() {
            0 => return format!("no lock sites{claims}"),
            some => plural(some, "lock site"),
        };
        let (count, counts) = (plural(crates.len(), "crate"), joined(counts, ", "));
        format!("{sites} in {count}: {counts}{claims}")
    }
}

fn place(site: &Record) -> impl Ord + '_ {
    let start = (&site.krate, &site.version, &site.file, site.line);
    (start, &site.module, &site.function)
}

fn claim_place(claim: &ClaimRecord) -> impl Ord + '_ {
    let start = (&claim.krate, &claim.version, &claim.file, claim.line);
    (start, &claim.module, &claim.row)
}

pub(crate) struct Key<'a> {
    /// As it is written: a pattern or an expression.
    pub(crate) written: &'a str,
    /// What is known of it before run time.
    pub(crate) known: Option<LockedKey>,
    /// The derivation of its number; a lease has no number.
    derivation: Option<Derivation>,
    pub(crate) is_lease: bool,
}

impl Key<'_> {
    /// The `bigint` if it is known before run time. For a lease, the number that its text spells.
    pub(crate) fn number(&self) -> Option<i64> {
        match self.known.as_ref()? {
            LockedKey::BigInt(number) => Some(*number),
            LockedKey::Pattern(_) if self.is_lease => None,
            LockedKey::Pattern(pattern) => Some(self.derivation?.key(&pattern.constant()?)),
            LockedKey::IntInt(..) | LockedKey::IntPattern(..) => None,
        }
    }

    /// Returns whether its number, or the second half of a pair, is derived from a pattern.
    pub(crate) fn is_derived(&self) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.derived().is_some())
    }

    /// The two numbers of a pair, as far as they are known before run time.
    pub(crate) fn pair(&self) -> Option<[Option<i32>; 2]> {
        match self.known.as_ref()? {
            LockedKey::IntInt(first, second) => Some([*first, *second]),
            known @ LockedKey::IntPattern(first, _) => {
                let derivation = self.derivation.filter(|_| !self.is_lease);
                let pair = derivation.and_then(|by| known.pair(by));
                Some([Some(*first), pair.map(|(_, second)| second)])
            }
            LockedKey::BigInt(_) | LockedKey::Pattern(_) => None,
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.derived().is_none_or(|it| it.constant().is_some()))
    }

    /// The key space: one of PostgreSQL's two, or that of leases.
    pub(crate) const fn space(&self) -> Option<&'static str> {
        match self.known {
            _ if self.is_lease => Some("lease"),
            Some(LockedKey::IntInt(..) | LockedKey::IntPattern(..)) => Some("(int, int)"),
            Some(_) => Some("bigint"),
            None => None,
        }
    }
}

/// The keys of a site. They can be decoded, because reading the site has checked that.
pub(crate) fn keys(site: &Record) -> Vec<Key<'_>> {
    let is_lease = is_lease(site);
    let derivation = Derivation::from_name(&site.derivation);
    let keys = site.keys.iter().enumerate();
    keys.map(|(index, key)| Key {
        written: site.written.get(index).unwrap_or(key),
        known: decode_key(key).ok().flatten(),
        derivation,
        is_lease,
    })
    .collect()
}

/// The declared locks of an inventory by the names of their types; `None` for a name that two types
/// have. They find the lock of a site with an expression as its key, such as
/// `RoomNight { room, night }`: its type is not known here, but the expression contains its name. The
/// lock is not found if the expression names several locks or none.
pub(crate) struct DeclaredLocks<'a>(BTreeMap<&'a str, Option<&'a Record>>);

impl<'a> DeclaredLocks<'a> {
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

    /// Returns the declared lock that a key's expression names, and the key of this lock in the
    /// scope of the site.
    pub(crate) fn key(&self, expression: &Key<'_>) -> Option<(&'a Record, Key<'a>)> {
        if expression.known.is_some() {
            return None;
        }
        let lock = self.named(expression.written)?;
        let is_lease = expression.is_lease;
        let key = keys(lock).pop()?;
        Some((lock, Key { is_lease, ..key }))
    }

    fn named(&self, expression: &str) -> Option<&'a Record> {
        let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut named = words.filter_map(|word| self.0.get(word).copied());
        let first = named.next()??;
        named.all(|other| other == Some(first)).then_some(first)
    }
}

pub(crate) fn is_lease(site: &Record) -> bool {
    site.key_space() == Ok(KeySpace::Lease)
}

/// `xact`, or `session shared`; `None` for a lock that is declared, and held where it is used.
pub(crate) fn scope_and_mode(site: &Record) -> Option<String> {
    match (site.scope.as_str(), site.mode.as_str()) {
        ("none", _) => None,
        (scope, "exclusive") => Some(scope.to_owned()),
        (scope, mode) => Some(format!("{scope} {mode}")),
    }
}

/// `bookings::slot::create`
pub(crate) fn path(site: &Record) -> String {
    match site.kind.as_str() {
        "macro" => format!("{}::lock_key!", site.module),
        _ => format!("{}::{}", site.module, site.function),
    }
}

/// `jobs::Mail`
pub(crate) fn claim_path(claim: &ClaimRecord) -> String {
    format!("{}::{}", claim.module, claim.row)
}

/// `src/slot.rs:24`; empty in a slim inventory.
pub(crate) fn file_line(site: &Record) -> String {
    line_of(&site.file, site.line)
}

pub(crate) fn claim_line(claim: &ClaimRecord) -> String {
    line_of(&claim.file, claim.line)
}

pub(crate) fn line_of(file: &str, line: u32) -> String {
    match (file, line) {
        ("", _) => String::new(),
        (file, 0) => file.to_owned(),
        (file, line) => format!("{file}:{line}"),
    }
}
