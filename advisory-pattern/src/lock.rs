//! Are two locks one lock on purpose, always different, or can they collide?
//!
//! The macro compares the sites of one crate, the program all its sites, the command whole artifacts. All use this code, so that they
//! agree. The [`KeySpace`] says how two keys are compared.

use crate::collision::Collision;
use crate::derivation::Derivation;
use crate::key_space::{Comparison, KeySpace};
use crate::language::Language;
use crate::locked_key::LockedKey;
use crate::overlap::overlap;
use crate::pattern::Pattern;
use crate::permit::permit_key;
use crate::shape::Shape;
use crate::witness::witness;

/// In `allow_overlap`: every other lock, with a name or without.
const ANY: &str = "*";

/// One lock as a site names it.
#[derive(Clone, Debug)]
pub struct Lock {
    key: LockedKey,
    space: KeySpace,
    derivation: Derivation,
    name: Option<String>,
    allowed: Vec<String>,
    permits: u32,
    language: Language,
}

impl Lock {
    /// Describes an advisory lock. `name` is what the site says in `name = "…"`; `allowed` the other locks' names in `allow_overlap`.
    #[must_use]
    pub fn new(
        key: LockedKey,
        derivation: Derivation,
        name: Option<String>,
        allowed: Vec<String>,
    ) -> Self {
        // Every placeholder has its shape written.
        let language = key.text().language(|_| Shape::Text);
        Self {
            key,
            space: KeySpace::Advisory,
            derivation,
            name,
            allowed,
            permits: 1,
            language,
        }
    }

    /// Says how many sessions may hold it at once: it then has as many keys.
    #[must_use]
    pub fn with_permits(self, permits: u32) -> Self {
        Self { permits, ..self }
    }

    /// Says which key space it is in, if not that of advisory locks.
    #[must_use]
    pub fn within(self, space: KeySpace) -> Self {
        Self { space, ..self }
    }

    /// Gives the lock's name, if its site says one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The key's pattern, if it is one.
    pub(crate) fn pattern(&self) -> Option<&Pattern> {
        match &self.key {
            LockedKey::Pattern(pattern) => Some(pattern),
            LockedKey::BigInt(_) | LockedKey::IntInt(..) => None,
        }
    }

    /// The lock with another key, a shaped pattern.
    pub(crate) fn with_pattern(&self, pattern: Pattern) -> Self {
        let (name, allowed) = (self.name.clone(), self.allowed.clone());
        let lock = Self::new(LockedKey::Pattern(pattern), self.derivation, name, allowed);
        lock.within(self.space)
    }

    /// The lock with this name, if it is one.
    pub(crate) fn renamed(self, name: Option<String>) -> Self {
        let name = name.or(self.name);
        Self { name, ..self }
    }

    /// Finds out how this lock collides with one of another site. `None`: they are one lock on purpose, or always different.
    ///
    /// They are one lock when they have the same name and the same key: text, shapes, filters and, except for leases, derivation. The
    /// names of placeholders do not matter. Two equal keys without a name collide: sharing is declared, not guessed.
    #[must_use]
    pub fn collision(&self, there: &Self) -> Option<Collision> {
        let comparison = self.space.comparison(there.space);
        if let (Some(name), Some(other)) = (&self.name, &there.name)
            && name == other
        {
            let is_one_key = match comparison {
                Comparison::Numbers => self.has_number_of(there),
                Comparison::Texts => self.key.text().same_form(&there.key.text()),
                Comparison::Disjoint => return Some(Collision::Scopes(name.clone())),
            };
            if is_one_key && self.permits != there.permits {
                return Some(Collision::Permits(name.clone()));
            }
            return (!is_one_key).then(|| Collision::Name(name.clone()));
        }
        if self.allows(there) || there.allows(self) {
            return None;
        }
        match comparison {
            Comparison::Numbers => self.number_collision(there),
            Comparison::Texts => witness(&self.language, &there.language).map(Collision::Lease),
            Comparison::Disjoint => None,
        }
    }

    fn allows(&self, there: &Self) -> bool {
        let mut allowed = self.allowed.iter();
        allowed.any(|allowed| allowed == ANY || there.name.as_ref() == Some(allowed))
    }

    /// How two advisory locks collide by their keys alone.
    fn number_collision(&self, there: &Self) -> Option<Collision> {
        match (&self.key, &there.key) {
            (LockedKey::Pattern(_), LockedKey::Pattern(_)) => {
                let can_collide =
                    self.derivation == there.derivation && overlap(&self.language, &there.language);
                can_collide
                    .then(|| witness(&self.language, &there.language))?
                    .map(Collision::Key)
            }
            (LockedKey::IntInt(a, b), LockedKey::IntInt(c, d)) => {
                let can_equal = |here: Option<i32>, there: Option<i32>| {
                    here.is_none() || there.is_none() || here == there
                };
                let number =
                    |here: Option<i32>, there: Option<i32>| here.or(there).unwrap_or_default();
                (can_equal(*a, *c) && can_equal(*b, *d))
                    .then(|| Collision::Number(format!("({}, {})", number(*a, *c), number(*b, *d))))
            }
            _ => {
                let (here, there) = (self.numbers(), there.numbers());
                let shared = here.iter().find(|number| there.contains(number))?;
                Some(Collision::Number(shared.to_string()))
            }
        }
    }

    /// Whether the two keys always become the same number.
    fn has_number_of(&self, there: &Self) -> bool {
        match (&self.key, &there.key) {
            (LockedKey::Pattern(here), LockedKey::Pattern(other)) => {
                here.same_form(other) && self.derivation == there.derivation
            }
            (here, other) => here == other,
        }
    }

    /// The `bigint`s of its permits, if they are known before the program runs.
    fn numbers(&self) -> Vec<i64> {
        let number = self.number();
        let key = match (&self.key, number) {
            (_, Some(number)) => number.to_string(),
            (LockedKey::IntInt(Some(first), Some(second)), _) => format!("({first}, {second})"),
            _ => return Vec::new(),
        };
        let others = (2..=self.permits).map(|permit| permit_key(&key, permit));
        number.into_iter().chain(others).collect()
    }

    /// The `bigint`, if it is known before the program runs.
    fn number(&self) -> Option<i64> {
        match &self.key {
            LockedKey::BigInt(number) => Some(*number),
            LockedKey::Pattern(pattern) => {
                pattern.constant().map(|text| self.derivation.key(&text))
            }
            LockedKey::IntInt(..) => None,
        }
    }
}
