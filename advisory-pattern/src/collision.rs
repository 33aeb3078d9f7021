//! Are two locks one lock, two that never meet, or two that can collide?
//!
//! The macro asks it of the sites of one crate, the program of all its sites, the command of whole artifacts: one piece of code, so
//! that they agree. Which two locks can meet at all is said by their [`KeySpace`].

use std::borrow::Cow;
use std::fmt;

use crate::{
    Derivation, KeySpace, Language, Part, Pattern, Placeholder, Shape, Witness, overlap, witness,
};

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
    language: Language,
}

/// What a lock's key is known to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockedKey {
    /// A pattern whose placeholders have their shapes: see [`Pattern::shaped`].
    Pattern(Pattern),
    /// A fixed number of the `bigint` key space.
    BigInt(i64),
    /// Two numbers of the `(int, int)` key space, as far as they are fixed.
    IntInt(Option<i32>, Option<i32>),
}

/// Why two locks cannot stand side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collision {
    /// Both patterns can render one key.
    Key(Witness),
    /// Both leases can have one text as their key.
    Lease(Witness),
    /// Both are one number, here as text.
    Number(String),
    /// One name stands for two keys.
    Name(String),
    /// One name stands for a lease and for an advisory lock.
    Scopes(String),
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
        // No placeholder is left without a shape, so none is asked for.
        let language = key.text().language(|_| Shape::Text);
        Self {
            key,
            space: KeySpace::Advisory,
            derivation,
            name,
            allowed,
            language,
        }
    }

    /// Says where its key is taken, if not among the advisory locks.
    #[must_use]
    pub fn within(self, space: KeySpace) -> Self {
        Self { space, ..self }
    }

    /// Gives the lock's name, if its site says one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Finds out how this lock and another, different site's one collide. `None`: they are one lock on purpose, or never meet.
    ///
    /// They are one lock when they have the same name and the same key (text, shapes, filters and, but for leases, derivation; what
    /// placeholders are called is no part of it). Two equal keys without a name collide: sharing is said, not guessed.
    #[must_use]
    pub fn collision(&self, there: &Self) -> Option<Collision> {
        let as_leases = self.space.meets_as_lease(there.space);
        if let (Some(name), Some(other)) = (&self.name, &there.name)
            && name == other
        {
            return match as_leases {
                Some(false) => Some(Collision::Scopes(name.clone())),
                _ if self.is_same_key(there) => None,
                _ => Some(Collision::Name(name.clone())),
            };
        }
        let allows = |one: &Self, other: &Self| {
            let names = |allowed: &String| allowed == ANY || other.name.as_ref() == Some(allowed);
            one.allowed.iter().any(names)
        };
        if allows(self, there) || allows(there, self) {
            return None;
        }
        match as_leases {
            None => self.meets(there),
            Some(true) => witness(&self.language, &there.language).map(Collision::Lease),
            Some(false) => None,
        }
    }

    /// How two advisory locks collide by their keys alone.
    fn meets(&self, there: &Self) -> Option<Collision> {
        match (&self.key, &there.key) {
            (LockedKey::Pattern(_), LockedKey::Pattern(_)) => {
                let meets =
                    self.derivation == there.derivation && overlap(&self.language, &there.language);
                meets
                    .then(|| witness(&self.language, &there.language))?
                    .map(Collision::Key)
            }
            (LockedKey::IntInt(a, b), LockedKey::IntInt(c, d)) => {
                let meets = |here: Option<i32>, there: Option<i32>| {
                    here.is_none() || there.is_none() || here == there
                };
                let number =
                    |here: Option<i32>, there: Option<i32>| here.or(there).unwrap_or_default();
                (meets(*a, *c) && meets(*b, *d))
                    .then(|| Collision::Number(format!("({}, {})", number(*a, *c), number(*b, *d))))
            }
            _ => {
                let number = self.number()?;
                (there.number() == Some(number)).then(|| Collision::Number(number.to_string()))
            }
        }
    }

    fn is_same_key(&self, there: &Self) -> bool {
        if self.space.meets_as_lease(there.space).is_some() {
            return self.key.text().same_form(&there.key.text());
        }
        match (&self.key, &there.key) {
            (LockedKey::Pattern(here), LockedKey::Pattern(other)) => {
                here.same_form(other) && self.derivation == there.derivation
            }
            (here, other) => here == other,
        }
    }

    /// The `bigint` that the lock always is.
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

impl LockedKey {
    /// Gives the key as a lease has it, where a number is the text that it renders as: `42`, `(7, 3)`.
    #[must_use]
    pub fn text(&self) -> Cow<'_, Pattern> {
        let (first, second) = match self {
            Self::Pattern(pattern) => return Cow::Borrowed(pattern),
            Self::BigInt(number) => {
                let parts = vec![Part::Text(number.to_string())];
                return Cow::Owned(Pattern { parts });
            }
            Self::IntInt(first, second) => (first, second),
        };
        let (mut parts, mut text) = (Vec::new(), "(".to_owned());
        for (half, name, behind) in [(first, "first", ", "), (second, "second", ")")] {
            if let Some(number) = half {
                text.push_str(&number.to_string());
            } else {
                parts.push(Part::Text(std::mem::take(&mut text)));
                parts.push(Part::Placeholder(Placeholder {
                    source: format!("{name}: int"),
                    path: vec![name.to_owned()],
                    shape: Some(Shape::Int),
                    filters: Vec::new(),
                    slice: false,
                }));
            }
            text.push_str(behind);
        }
        parts.push(Part::Text(text));
        Cow::Owned(Pattern { parts })
    }
}

/// ``both can render "t1:x": here tenant = "t1", …``, ``both are the number 42``, ``one name for two keys: `booking` ``
impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(witness) | Self::Lease(witness) => witness.fmt(f),
            Self::Number(number) => write!(f, "both are the number {number}"),
            Self::Name(name) => write!(
                f,
                "`{name}` names both, and the keys differ in text, shapes or derivation"
            ),
            Self::Scopes(name) => write!(
                f,
                "`{name}` names a lease and an advisory lock, and who holds the one keeps nobody from the other"
            ),
        }
    }
}

impl Collision {
    /// Says what is wrong; `here` and `there` are the two keys as written.
    #[must_use]
    pub fn headline(&self, here: &str, there: &str) -> String {
        match self {
            Self::Key(_) | Self::Number(_) => {
                format!("advisory lock keys can collide: `{here}` and `{there}`")
            }
            Self::Lease(_) => format!("lease keys can collide: `{here}` and `{there}`"),
            Self::Name(name) => {
                format!("advisory lock `{name}` has two keys: `{here}` and `{there}`")
            }
            Self::Scopes(name) => {
                format!("advisory lock `{name}` is two locks: `{here}` and `{there}`")
            }
        }
    }

    /// Says what to write instead; `key` is the pattern of the site that is told, `word` its function or type, if it has a name.
    #[must_use]
    pub fn help(&self, key: &str, word: Option<&str>) -> String {
        match self {
            Self::Key(_) | Self::Lease(_) => {
                // Two numbers, and the names of values in them, are no pattern.
                let word = word.filter(|_| !key.starts_with('('));
                let own = word.map_or_else(String::new, |word| format!(": `{word}:{key}`"));
                format!(
                    "if they are one lock, give both the same `name = \"…\"` or declare it once; if not, start one key with its own \
                     word{own}"
                )
            }
            Self::Number(_) => {
                "if they are one lock, give both the same `name = \"…\"`; if not, take another number".to_owned()
            }
            Self::Name(_) => {
                "one name is one text with the same shapes and derivation: write the same key, shapes included, or another name".to_owned()
            }
            Self::Scopes(_) => {
                "one name is one lock: write `scope = \"lease\"` at both or at neither, or another name".to_owned()
            }
        }
    }
}
