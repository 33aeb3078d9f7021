//! Which lock is a number? Said for sure where the number is fixed, else as far as a backend tells.

use super::application::{Application, Said};
use crate::inventory::{InventoryError, Site, sites};
use crate::{Key, LockKey};
use advisory_pattern::{
    Derivation, KeySpace, Language, LockedKey, Part, Pattern, Shape, decode_key, overlap,
};
use std::sync::Arc;

/// What locks are called: the lock sites of a program, and keys that it knows.
///
/// ```no_run
/// use advisory_runtime::{inventory::InventoryError, monitor::Names};
///
/// let names = Names::of_program()?.with_key((7, 1));
/// # Ok::<_, InventoryError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Names {
    patterns: Vec<Known>,
    rendered: Vec<(Key, String, &'static str)>,
}

/// One key of a site.
#[derive(Clone, Debug)]
struct Known {
    written: String,
    key: LockedKey,
    /// The number that the key always is.
    number: Option<Key>,
    language: Language,
    derivation: Derivation,
    space: KeySpace,
    site: Arc<Site>,
}

/// How sure it is that a lock is called so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Certainty {
    /// The number was checked: it is fixed, or the key's text has it.
    Certain,
    /// A backend that holds or awaits this lock and no other of an unknown name says so.
    Likely,
    /// A backend that holds several locks says so of the last one that it asked for.
    OneOf,
}

/// What a lock is called.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Name {
    /// How sure that is.
    pub certainty: Certainty,
    /// What its sites say in `name = "…"`.
    pub name: Option<String>,
    /// The key pattern as written; the key's text, where it is known; or what a backend says, where no site is known.
    pub key: String,
    /// The lock sites; none where the inventory does not have the pattern.
    pub sites: Vec<Arc<Site>>,
}

impl Names {
    /// None but what backends say themselves.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Those of the running program's lock sites. Reads the program's file: once, not for every look.
    ///
    /// # Errors
    ///
    /// Those of [`inventory::sites`](sites()).
    pub fn of_program() -> Result<Self, InventoryError> {
        Self::of(sites()?)
    }

    /// Those of other lock sites, such as another program's.
    ///
    /// # Errors
    ///
    /// [`InventoryError::Record`] for a site that this version cannot read.
    pub fn of(sites: impl IntoIterator<Item = Site>) -> Result<Self, InventoryError> {
        let mut patterns = Vec::new();
        for site in sites {
            let site = Arc::new(site);
            let derivation = Derivation::from_name(&site.derivation).unwrap_or_default();
            for (index, encoded) in site.keys.iter().enumerate() {
                let Some(key) = decode_key(encoded).map_err(InventoryError::Record)? else {
                    continue;
                };
                patterns.push(Known {
                    written: site.written.get(index).unwrap_or(encoded).clone(),
                    // No placeholder is left without a shape, so none is asked for.
                    language: key.text().language(|_| Shape::Text),
                    number: number(&key, derivation),
                    key,
                    derivation,
                    space: KeySpace::of(&site.scope, &site.kind),
                    site: Arc::clone(&site),
                });
            }
        }
        Ok(Self {
            patterns,
            rendered: Vec::new(),
        })
    }

    /// Names one key more, which the caller knows: the lock on it is shown with its text.
    #[must_use]
    pub fn with_key(mut self, key: impl LockKey) -> Self {
        self.rendered
            .push((key.key(), key.rendered(), key.pattern()));
        self
    }

    /// The names of a number, whoever holds it.
    pub(super) fn of_number(&self, key: Key) -> Vec<Name> {
        let mut names = Vec::new();
        for (_, text, pattern) in self.rendered.iter().filter(|(known, ..)| *known == key) {
            let sites = self.advisory().filter(|known| known.written == *pattern);
            add(&mut names, Certainty::Certain, text, sites);
        }
        if names.is_empty() {
            for known in self.advisory().filter(|known| known.number == Some(key)) {
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

    /// The names that a backend's own word gives a number; `certainty` is how sure it is that the word is about this one.
    pub(super) fn of_said(&self, key: Key, said: &Said, certainty: Certainty) -> Vec<Name> {
        let mut names = Vec::new();
        for known in self.advisory().filter(|known| said.is(&known.written)) {
            // A number that is fixed has its name already, or is another.
            if known.number.is_none() {
                add(&mut names, certainty, &known.written, [known]);
            }
        }
        if !names.is_empty() || self.advisory().any(|known| said.is(&known.written)) {
            return names;
        }
        if !said.is_cut {
            let text = &said.text;
            let has_number = |derivation: &Derivation| Key::BigInt(derivation.key(text)) == key;
            let renders = |known: &&Known| {
                matches!(known.key, LockedKey::Pattern(_))
                    && overlap(&known.language, &language_of(text))
            };
            if let Some(derivation) = Derivation::ALL.into_iter().find(has_number) {
                let sites = self.advisory().filter(renders);
                let sites = sites.filter(|known| known.derivation == derivation);
                add(&mut names, Certainty::Certain, text, sites);
                return names;
            }
            // With a `<` it is rather a pattern, of a program that the inventory does not have.
            if !text.contains('<') && self.advisory().any(|known| renders(&known)) {
                // The key of a site, and another one than this.
                return names;
            }
        }
        add(&mut names, certainty, &said.shown(), []);
        names
    }

    /// The names of a lease, by its pattern, or by the SHA-256 or the text of its key.
    #[cfg(feature = "diesel-async")]
    pub(super) fn of_lease(&self, row: &crate::lease::Row) -> Vec<Name> {
        let patterns = self.patterns.iter();
        let leased = patterns.filter(|known| known.space != KeySpace::Advisory);
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

    /// Reads an application's name, with the patterns that are known.
    pub(super) fn application(&self, shown: &str) -> Application {
        let readings = Application::readings(shown);
        let known = |reading: &&Application| {
            let key = reading.key.as_ref();
            key.is_some_and(|said| self.patterns.iter().any(|known| said.is(&known.written)))
        };
        let reading = readings.iter().find(known).or(readings.first()).cloned();
        let mut application = reading.unwrap_or_else(|| Application {
            name: shown.to_owned(),
            key: None,
        });
        if let Some(said) = &mut application.key {
            let mut whole: Vec<&str> = self
                .patterns
                .iter()
                .filter(|known| said.is(&known.written))
                .map(|known| known.written.as_str())
                .collect();
            whole.sort_unstable();
            whole.dedup();
            if let [whole] = whole[..] {
                whole.clone_into(&mut said.text);
                said.is_cut = false;
            }
        }
        application
    }

    fn advisory(&self) -> impl Iterator<Item = &Known> {
        let patterns = self.patterns.iter();
        patterns.filter(|known| known.space != KeySpace::Lease)
    }
}

impl Known {
    /// Whether a pair of which one half is fixed can be this key.
    fn has_half(&self, key: Key) -> bool {
        let agrees = |fixed: Option<i32>, half: i32| fixed.is_none_or(|fixed| fixed == half);
        match (&self.key, key) {
            (LockedKey::IntInt(None, None), _) => false,
            (LockedKey::IntInt(a, b), Key::IntInt(first, second)) => {
                agrees(*a, first) && agrees(*b, second)
            }
            _ => false,
        }
    }
}

fn number(key: &LockedKey, derivation: Derivation) -> Option<Key> {
    match key {
        LockedKey::BigInt(number) => Some(Key::BigInt(*number)),
        LockedKey::IntInt(first, second) => Some(Key::IntInt((*first)?, (*second)?)),
        LockedKey::Pattern(pattern) => {
            let text = pattern.constant()?;
            Some(Key::BigInt(derivation.key(&text)))
        }
    }
}

impl Said {
    /// The text, with a mark where it is cut.
    fn shown(&self) -> String {
        let mark = if self.is_cut { "…" } else { "" };
        format!("{}{mark}", self.text)
    }
}

fn language_of(text: &str) -> Language {
    let parts = vec![Part::Text(text.to_owned())];
    Pattern { parts }.language(|_| Shape::Text)
}

/// Adds sites to the name that they share, or a name.
fn add<'k>(
    names: &mut Vec<Name>,
    certainty: Certainty,
    key: &str,
    known: impl IntoIterator<Item = &'k Known>,
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
