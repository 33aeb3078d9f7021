//! Comparison of two locks: one lock on purpose, always different, or able to collide.
//!
//! The macro compares the sites of one crate, the program all its sites, the command whole
//! artifacts. All use this code, so that they agree. The [`KeySpace`] says how two keys are
//! compared.

use crate::collision::Collision;
use crate::derivation::Derivation;
use crate::language::Language;
use crate::language::witness::witness;
use crate::pattern::Pattern;
use crate::pattern::key_space::{Comparison, KeySpace};
use crate::pattern::locked_key::{LockedKey, encode_key};
use crate::pattern::permit::{Permits, permit_key};
use crate::pattern::shape::Shape;

/// In `allow_overlap`: every other lock, with a name or without.
const ANY: &str = "*";

/// A lock as a site describes it.
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Collision, Derivation, Lock, LockedKey, parse};
///
/// let lock = |key| {
///     let key = parse(key).map(LockedKey::Pattern);
///     key.map(|key| Lock::new(key, Derivation::Sha256, None, Vec::new()))
/// };
/// let (book, pay) = (lock("<room: int>:<day: date>")?, lock("<account: int>:<month: text>")?);
/// assert!(matches!(book.collision(&pay), Some(Collision::Key(_))));
/// assert_eq!(book.collision(&lock("pay:<account: int>")?), None);
/// # Ok::<(), Vec<advisory_pattern::PatternError>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    key: LockedKey,
    space: KeySpace,
    derivation: Derivation,
    name: Option<String>,
    allowed: Vec<String>,
    permits: Permits,
    /// The derivation of the key's text; for a pair with a pattern, of its second half.
    language: Language,
}

/// The part of a lock that decides with which locks it collides, and how: everything except the
/// names of its placeholders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockForm {
    key: String,
    space: KeySpace,
    derivation: &'static str,
    name: Option<String>,
    allowed: Vec<String>,
    permits: Permits,
}

impl Lock {
    /// Creates an advisory lock. `name` is the argument of the site; `allowed` has the names in its
    /// `allow_overlap`.
    #[must_use]
    pub fn new(
        key: LockedKey,
        derivation: Derivation,
        name: Option<String>,
        allowed: Vec<String>,
    ) -> Self {
        // Every placeholder has its shape written.
        let language = match key.derived() {
            Some(pattern) => pattern.language(|_| Shape::Text),
            None => key.text().language(|_| Shape::Text),
        };
        Self {
            key,
            space: KeySpace::Advisory,
            derivation,
            name,
            allowed,
            permits: Permits::ONE,
            language,
        }
    }

    /// Sets the number of sessions that can hold the lock at once, which is also its number of
    /// keys.
    #[must_use]
    pub fn with_permits(self, permits: Permits) -> Self {
        Self { permits, ..self }
    }

    /// Sets the key space, by default that of advisory locks.
    #[must_use]
    pub fn within(self, space: KeySpace) -> Self {
        Self { space, ..self }
    }

    /// Returns the lock's name, if its site sets one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the part of the lock that decides with which locks it collides, and how.
    #[must_use]
    pub fn form(&self) -> LockForm {
        LockForm {
            key: encode_key(Some(&self.key.without_names())),
            space: self.space,
            derivation: self.derivation.name(),
            name: self.name.clone(),
            allowed: self.allowed.clone(),
            permits: self.permits.clone(),
        }
    }

    /// The key's pattern, if it is one; for a pair that of its second half.
    pub(crate) fn pattern(&self) -> Option<&Pattern> {
        self.key.derived()
    }

    pub(crate) fn first_half(&self) -> Option<i32> {
        self.key.first_half()
    }

    pub(crate) fn with_pattern(&self, pattern: Pattern) -> Self {
        let key = match self.first_half() {
            Some(first) => LockedKey::IntPattern(first, pattern),
            None => LockedKey::Pattern(pattern),
        };
        let (name, allowed) = (self.name.clone(), self.allowed.clone());
        Self::new(key, self.derivation, name, allowed).within(self.space)
    }

    pub(crate) fn renamed(self, name: Option<String>) -> Self {
        let name = name.or(self.name);
        Self { name, ..self }
    }

    /// Returns how this lock collides with one of another site, or `None` if they are one lock on
    /// purpose, or always different.
    ///
    /// They are one lock if they have one name and equal keys: text, shapes, filters and, except
    /// for leases, derivation. The names of placeholders do not matter. Two equal keys without a
    /// name collide: sharing is declared, not guessed.
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
            if is_one_key && !self.permits.can_equal(&there.permits) {
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
            (LockedKey::Pattern(_), LockedKey::Pattern(_))
            | (LockedKey::IntPattern(..), LockedKey::IntPattern(..)) => {
                let is_derived_alike =
                    self.first_half() == there.first_half() && self.derivation == there.derivation;
                is_derived_alike
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
            (LockedKey::IntPattern(..), LockedKey::IntInt(first, second)) => self
                .pair_collision(*first, *second)
                .or_else(|| self.fixed_collision(there)),
            (LockedKey::IntInt(first, second), LockedKey::IntPattern(..)) => there
                .pair_collision(*first, *second)
                .or_else(|| self.fixed_collision(there)),
            _ => self.fixed_collision(there),
        }
    }

    /// How two advisory locks collide by the numbers that are known before the program runs.
    fn fixed_collision(&self, there: &Self) -> Option<Collision> {
        let (here, there) = (self.numbers(), there.numbers());
        let shared = here.iter().find(|number| there.contains(number))?;
        Some(Collision::Number(shared.to_string()))
    }

    /// How a pair with a derived second half collides with a pair of numbers, as far as these are
    /// fixed. It is unknown if the values of a pattern can give a fixed number.
    fn pair_collision(&self, first: Option<i32>, second: Option<i32>) -> Option<Collision> {
        let own = self.first_half()?;
        let half = match (self.key.pair(self.derivation), second) {
            (Some((_, derived)), _) => derived,
            (None, Some(_)) => return None,
            // Any number, so that of a key that the pattern renders.
            (None, None) => {
                let key = witness(&self.language, &self.language)?.key;
                self.derivation.half(&key)
            }
        };
        let is_one =
            first.is_none_or(|first| first == own) && second.is_none_or(|second| second == half);
        is_one.then(|| Collision::Number(format!("({own}, {half})")))
    }

    /// Returns whether the two keys always become one number.
    fn has_number_of(&self, there: &Self) -> bool {
        let is_derived_alike = self.pattern().is_none() || self.derivation == there.derivation;
        is_derived_alike && self.key.without_names() == there.key.without_names()
    }

    /// The `bigint`s of its permits, if they are known before the program runs. If their number is
    /// not known, only the first.
    fn numbers(&self) -> Vec<i64> {
        let number = self.number();
        let key = match (number, self.key.pair(self.derivation)) {
            (Some(number), _) => number.to_string(),
            (None, Some((first, second))) => format!("({first}, {second})"),
            (None, None) => return Vec::new(),
        };
        let known = match self.permits {
            Permits::Number(permits) => permits,
            Permits::Expression(_) => 1,
        };
        let others = (2..=known).map(|permit| permit_key(&key, permit));
        number.into_iter().chain(others).collect()
    }

    fn number(&self) -> Option<i64> {
        match &self.key {
            LockedKey::BigInt(number) => Some(*number),
            LockedKey::Pattern(pattern) => {
                pattern.constant().map(|text| self.derivation.key(&text))
            }
            LockedKey::IntInt(..) | LockedKey::IntPattern(..) => None,
        }
    }
}
