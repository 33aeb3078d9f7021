//! The names of locks in `pg_locks`, found by their numbers or by the comments of queries.

use super::Comment;
use crate::inventory::{InventoryError, Site, sites};
use crate::{Key, LockKey, well_known};
use advisory_pattern::{
    Derivation, KeySpace, Language, LockedKey, MOST_PERMITS, Part, Pattern, Permits, RecordError,
    Shape, decode_key, overlap,
};
use std::sync::Arc;

/// The names of locks: a program's lock sites, and keys that the caller knows.
///
/// ```no_run
/// use advisory_runtime::{inventory::InventoryError, monitor::Names};
///
/// let names = Names::of_program()?.with_key((7, 1));
/// # Ok::<_, InventoryError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Names {
    site_keys: Vec<SiteKey>,
    /// Keys that the caller knows: the number, the text and the pattern.
    known_keys: Vec<(Key, String, &'static str)>,
}

#[derive(Clone, Debug)]
struct SiteKey {
    written: String,
    key: LockedKey,
    number: Option<Key>,
    language: Language,
    derivation: Derivation,
    space: KeySpace,
    site: Arc<Site>,
}

/// The certainty of a lock's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Certainty {
    /// The number was checked: it is fixed, or it follows from the key's text.
    Certain,
    /// The fixed half of a pair agrees, the query that asks for this number has the name in its
    /// comment, or the number is distinctive of a [well-known](crate::well_known) tool.
    Likely,
    /// The query asks for several locks and names them all, the server has cut it off before the
    /// numbers, or a well-known tool takes this number, and others may take it too.
    Possible,
}

/// A name of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Name {
    /// Its certainty.
    pub certainty: Certainty,
    /// The sites' `name = "…"`; for a [well-known](crate::well_known) lock, the tool's name.
    pub name: Option<String>,
    /// The key's text, if it is known; otherwise the key pattern as written; or the text of a
    /// query's comment, if no site is known.
    pub key: String,
    /// The lock sites; empty if the inventory does not have the pattern.
    pub sites: Vec<Arc<Site>>,
}

impl Names {
    /// Only the names in the comments of queries.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads the names of the running program's lock sites by [`inventory::sites`](sites()), with
    /// its errors, from the program's file. Call it once and keep the result.
    pub fn of_program() -> Result<Self, InventoryError> {
        Self::of(sites()?)
    }

    /// Takes the names of other lock sites, such as another program's.
    ///
    /// # Errors
    ///
    /// [`InventoryError::Record`] for a site that this version cannot read.
    pub fn of(sites: impl IntoIterator<Item = Site>) -> Result<Self, InventoryError> {
        let mut site_keys = Vec::new();
        for site in sites {
            let site = Arc::new(site);
            let derivation = Derivation::from_name(&site.derivation).ok_or_else(|| {
                let field = format!("derivation `{}`", site.derivation);
                InventoryError::Record(RecordError::Malformed(field))
            })?;
            for (index, encoded) in site.keys.iter().enumerate() {
                let Some(key) = decode_key(encoded).map_err(InventoryError::Record)? else {
                    continue;
                };
                site_keys.push(SiteKey {
                    written: site.written.get(index).unwrap_or(encoded).clone(),
                    // Every placeholder in a record has its shape.
                    language: key.text().language(|_| Shape::Text),
                    number: number(&key, derivation),
                    key,
                    derivation,
                    space: site.key_space().map_err(InventoryError::Record)?,
                    site: Arc::clone(&site),
                });
            }
        }
        Ok(Self {
            site_keys,
            known_keys: Vec::new(),
        })
    }

    /// Adds a key that the caller knows, so that its lock is shown with the rendered key.
    #[must_use]
    pub fn with_key(mut self, key: impl LockKey) -> Self {
        self.known_keys
            .push((key.key(), key.rendered(), key.pattern()));
        self
    }

    /// Finds the names of a lock in the server's log: by its number, by the statement that asks for
    /// it, or in the table of [well-known](crate::well_known) keys.
    #[must_use]
    pub fn of_lock(&self, key: Key, statement: &str, database: Option<&str>) -> Vec<Name> {
        let mut names = self.of_number(key);
        if let (false, Some(comment)) = (are_certain(&names), Comment::read(statement, false)) {
            prefer(&mut names, self.of_comment(key, &comment));
        }
        if names.is_empty() {
            names = of_tools(key, database);
        }
        names
    }

    pub(super) fn of_number(&self, key: Key) -> Vec<Name> {
        let mut names = Vec::new();
        for (_, text, pattern) in self.known_keys.iter().filter(|(known, ..)| *known == key) {
            let sites = self.advisory().filter(|known| known.written == *pattern);
            add(&mut names, Certainty::Certain, text, sites);
        }
        if names.is_empty() {
            for known in self.advisory().filter(|known| known.is_number(key)) {
                add(&mut names, Certainty::Certain, &known.written, [known]);
            }
        }
        if names.is_empty() {
            for known in self.advisory().filter(|known| known.has_half(key)) {
                add(&mut names, Certainty::Likely, &known.written, [known]);
            }
        }
        names
    }

    /// Finds the names that the comment of a query gives a lock.
    pub(super) fn of_comment(&self, key: Key, comment: &Comment) -> Vec<Name> {
        let mut names = Vec::new();
        if !comment.may_ask_for(key) {
            return names;
        }
        let mut other = Vec::new();
        for text in comment.key_texts() {
            match text.derived {
                Some((derived, derivation)) if derived == key => {
                    let language = language_of(text.text);
                    let renders = |known: &&SiteKey| {
                        known.derivation == derivation
                            && known.key.derived().is_some()
                            && overlap(&known.language, &language)
                    };
                    let sites = self.advisory().filter(renders);
                    add(&mut names, Certainty::Certain, text.text, sites);
                }
                // The key of another lock.
                Some(_) => {}
                None => other.push(text),
            }
        }
        if !names.is_empty() {
            return names;
        }
        let certainty = match other[..] {
            [_] if comment.asks_for(key) => Certainty::Likely,
            _ => Certainty::Possible,
        };
        for text in other {
            // A pattern with a fixed number would have been found by this number.
            let shown = |known: &&SiteKey| known.number.is_none() && text.shows(&known.written);
            let mut known = self.advisory().filter(shown).peekable();
            if known.peek().is_none() {
                add(&mut names, certainty, &text.marked(), []);
            }
            for known in known {
                add(&mut names, certainty, &known.written, [known]);
            }
        }
        names
    }

    /// Finds the names of a lease by its pattern, or by the SHA-256 or the text of its key.
    #[cfg(feature = "diesel-async")]
    pub(super) fn of_lease(&self, row: &crate::lease::Row) -> Vec<Name> {
        let site_keys = self.site_keys.iter();
        let leased = site_keys.filter(|known| known.space != KeySpace::Advisory);
        let mut names = Vec::new();
        for known in leased {
            let constant = known.key.text().constant();
            let is_it = match (constant, &row.pattern, &row.key) {
                (Some(constant), ..) => advisory_pattern::sha256(&constant) == row.key_hash,
                (None, Some(pattern), _) => known.written == *pattern,
                (None, None, Some(text)) => overlap(&known.language, &language_of(text)),
                (None, None, None) => false,
            };
            if is_it {
                add(&mut names, Certainty::Certain, &known.written, [known]);
            }
        }
        names
    }

    /// Finds the leases that have a name with this text, in upper or lower case. Returns their
    /// patterns and key hashes.
    #[cfg(feature = "diesel-async")]
    pub(super) fn leases_with(&self, text: &str) -> (Vec<String>, Vec<Vec<u8>>) {
        let text = text.to_lowercase();
        let (mut patterns, mut hashes) = (Vec::new(), Vec::new());
        for known in &self.site_keys {
            let name = known.site.name.iter();
            let label = name.chain([&known.written]).map(|part| part.to_lowercase());
            let label = label.collect::<Vec<_>>().join(": ");
            if known.space == KeySpace::Advisory || !label.contains(&text) {
                continue;
            }
            match known.key.text().constant() {
                Some(constant) => hashes.push(advisory_pattern::sha256(&constant).to_vec()),
                None => patterns.push(known.written.clone()),
            }
        }
        (patterns, hashes)
    }

    fn advisory(&self) -> impl Iterator<Item = &SiteKey> {
        let site_keys = self.site_keys.iter();
        site_keys.filter(|known| known.space != KeySpace::Lease)
    }
}

impl SiteKey {
    /// Returns `true` if its number is fixed, and is the key or that of another permit.
    fn is_number(&self, key: Key) -> bool {
        let Some(number) = self.number else {
            return false;
        };
        let permits = match self.site.permits {
            None => 1,
            Some(Permits::Number(permits)) => permits,
            Some(Permits::Expression(_)) => MOST_PERMITS,
        };
        number == key || number.permits(permits).contains(&key)
    }

    /// Returns `true` for a pair with one fixed half that agrees with the key.
    fn has_half(&self, key: Key) -> bool {
        match (&self.key, key) {
            (LockedKey::IntInt(None, None), _) => false,
            (LockedKey::IntInt(a, b), Key::IntInt(first, second)) => {
                a.is_none_or(|fixed| fixed == first) && b.is_none_or(|fixed| fixed == second)
            }
            // A constant pattern has a number, which `is_number` compares.
            (LockedKey::IntPattern(fixed, _), Key::IntInt(first, _)) => {
                self.number.is_none() && *fixed == first
            }
            _ => false,
        }
    }
}

pub(super) fn are_certain(names: &[Name]) -> bool {
    let mut names = names.iter();
    names.any(|name| name.certainty == Certainty::Certain)
}

/// Replaces the names that a number gives by the most certain ones that comments give, unless these
/// are less certain. Several sites can share the first half of a pair, so comments say more.
pub(super) fn prefer(names: &mut Vec<Name>, found: Vec<Name>) {
    let best = |names: &[Name]| names.iter().map(|name| name.certainty).min();
    let Some(of_comments) = best(&found) else {
        return;
    };
    if best(names).is_some_and(|of_number| of_number < of_comments) {
        return;
    }
    names.clear();
    for name in found {
        if name.certainty == of_comments && !names.contains(&name) {
            names.push(name);
        }
    }
}

fn number(key: &LockedKey, derivation: Derivation) -> Option<Key> {
    match key {
        LockedKey::BigInt(number) => Some(Key::BigInt(*number)),
        LockedKey::IntInt(..) | LockedKey::IntPattern(..) => {
            let (first, second) = key.pair(derivation)?;
            Some(Key::IntInt(first, second))
        }
        LockedKey::Pattern(pattern) => {
            let text = pattern.constant()?;
            Some(Key::BigInt(derivation.key(&text)))
        }
    }
}

/// Finds the other tools that take a lock, by its number and the database's name.
pub(super) fn of_tools(key: Key, database: Option<&str>) -> Vec<Name> {
    let names = well_known::tools(key, database).into_iter();
    let names = names.map(|tool| Name {
        certainty: if tool.is_distinctive {
            Certainty::Likely
        } else {
            Certainty::Possible
        },
        name: Some(tool.name.to_owned()),
        key: key.to_string(),
        sites: Vec::new(),
    });
    names.collect()
}

fn language_of(text: &str) -> Language {
    let parts = vec![Part::Text(text.to_owned())];
    Pattern { parts }.language(|_| Shape::Text)
}

/// Adds a name, or adds its sites if the name is already there.
fn add<'k>(
    names: &mut Vec<Name>,
    certainty: Certainty,
    key: &str,
    known: impl IntoIterator<Item = &'k SiteKey>,
) {
    let sites: Vec<Arc<Site>> = known
        .into_iter()
        .map(|known| Arc::clone(&known.site))
        .collect();
    let name = sites.iter().find_map(|site| site.name.clone());
    let same = names
        .iter_mut()
        .find(|given| given.key == key && given.name == name);
    if let Some(given) = same {
        for site in sites {
            if !given.sites.contains(&site) {
                given.sites.push(site);
            }
        }
        return;
    }
    names.push(Name {
        certainty,
        name,
        key: key.to_owned(),
        sites,
    });
}
