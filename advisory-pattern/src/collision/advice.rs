//! The help of a message about two locks that collide.
//!
//! Each option is tried before it is offered: it ends the collision, and the lock that it changes
//! collides with no other known lock. The shape of a placeholder comes first, because it
//! changes no key. A new word changes keys, so it is for the pattern that has none.

mod guess;
mod name;
mod word;

use crate::collision::Collision;
use crate::collision::lock::Lock;
use crate::pattern::locked_key::{pair_text, split_pair_text};
use crate::pattern::parse::parse;
use crate::pattern::shape::Shape;
use crate::pattern::{Pattern, Placeholder};

/// One of two locks that collide.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The lock.
    pub lock: &'a Lock,
    /// Its key as written.
    pub written: &'a str,
    /// Its site, as a message names it: ``fn `book` ``.
    pub item: &'a str,
    /// The name of its function or type, with which its key can start; `None` for `lock_key!`.
    pub word: Option<&'a str>,
    /// Its placeholders that are taken for text because their types are unknown.
    pub guesses: &'a [Guess],
}

/// A placeholder that is treated as text because its type is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The placeholder as written, without `<` and `>`.
    pub source: String,
    /// The type, if it is known by name.
    pub ty: Option<String>,
    /// The shape, if a declaration of that type was seen.
    pub shape: Option<Shape>,
}

/// The help of a message: what to write instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// The advice in words.
    pub text: String,
    /// The edits of each suggestion in the text. Each makes the two locks different, or one.
    pub options: Vec<Vec<Edit>>,
}

/// A change at one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// True for the site that gets the message, false for the other one.
    pub is_here: bool,
    /// The new key pattern, if it changes.
    pub key: Option<String>,
    /// The new name, if it changes.
    pub name: Option<String>,
}

impl Edit {
    fn key(is_here: bool, key: String) -> Self {
        let key = Some(key);
        let name = None;
        Self { is_here, key, name }
    }
}

/// Returns what to write when two locks collide. A suggestion collides with none of `others`, the
/// other known locks.
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Derivation, Lock, LockedKey, Side, advice};
///
/// let lock = Lock::new(LockedKey::BigInt(42), Derivation::Sha256, None, Vec::new());
/// let side = |item| Side { lock: &lock, written: "42", item, word: None, guesses: &[] };
/// let collision = lock.collision(&lock).expect("one number");
/// let advice = advice(&collision, &side("fn `book`"), &side("fn `cancel`"), [].iter());
/// assert!(advice.text.ends_with("if not, use another number"));
/// ```
#[must_use]
pub fn advice<'a>(
    collision: &Collision,
    here: &Side<'_>,
    there: &Side<'_>,
    others: impl Iterator<Item = &'a Lock>,
) -> Advice {
    let advisor = Advisor {
        here,
        there,
        others: others.collect(),
    };
    match collision {
        Collision::Key(_) | Collision::Lease(_) => advisor.of_keys(),
        Collision::Name(_) => advisor.for_name(),
        Collision::Number(_) => Advice::of(
            "if they are one lock, give both the same `name = \"…\"`; if not, use another number",
        ),
        Collision::Permits(_) => {
            Advice::of("a name is one lock: write the same `permits` at both, or at neither")
        }
        Collision::Scopes(_) => Advice::of(
            "a name is one lock: write `#[advisory_lease]` at both or at neither, or another name",
        ),
    }
}

impl Advice {
    fn of(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            options: Vec::new(),
        }
    }
}

struct Advisor<'a> {
    here: &'a Side<'a>,
    there: &'a Side<'a>,
    others: Vec<&'a Lock>,
}

impl Side<'_> {
    /// The lock with another text for its key; `None` if that is not a key pattern.
    fn with_key(&self, written: &str) -> Option<Lock> {
        let known = self.lock.pattern()?;
        let shape_of = |placeholder: &Placeholder| {
            let mut placeholders = known.placeholders();
            let same = placeholders.find(|known| known.path == placeholder.path);
            same.and_then(|known| known.shape).unwrap_or(Shape::Text)
        };
        let text = self.text_of(written);
        Some(self.lock.with_pattern(parse(text).ok()?.shaped(shape_of)))
    }

    /// The pattern as written, which for a pair is that of its second half.
    fn text(&self) -> &str {
        self.text_of(self.written)
    }

    fn text_of<'t>(&self, key: &'t str) -> &'t str {
        let pair = self.lock.first_half().and_then(|_| split_pair_text(key));
        pair.map_or(key, |(_, text)| text)
    }

    /// The key with this pattern, which for a pair is that of its second half.
    pub(crate) fn key_of(&self, pattern: &str) -> String {
        match self.lock.first_half() {
            Some(first) => pair_text(first, pattern),
            None => pattern.to_owned(),
        }
    }

    pub(crate) fn is_one_pattern(&self, there: &Self) -> bool {
        let pattern = |side: &Self| (side.lock.first_half(), side.lock.pattern().cloned());
        pattern(self) == pattern(there)
    }

    /// The declared lock as an expression, `SlotLock { … }`, if it is one.
    fn declared(&self) -> Option<String> {
        let name = self.item.strip_prefix("struct `")?.strip_suffix('`')?;
        Some(format!("{name} {{ … }}"))
    }

    /// `", at fn `book`"` for the site that does not get the message.
    fn at(&self, is_here: bool) -> String {
        if is_here {
            String::new()
        } else {
            format!(", at {}", self.item)
        }
    }
}

impl Advisor<'_> {
    fn side(&self, is_here: bool) -> &Side<'_> {
        if is_here { self.here } else { self.there }
    }

    /// Returns whether the edits make the two locks different, or one, without a collision with a
    /// third.
    fn solves(&self, edits: &[Edit]) -> bool {
        let changed = |is_here: bool| {
            let side = self.side(is_here);
            let mut edits = edits.iter().filter(|edit| edit.is_here == is_here);
            let Some(edit) = edits.next() else {
                return Some((side.lock.clone(), false));
            };
            let lock = match &edit.key {
                Some(key) => side.with_key(key)?,
                None => side.lock.clone(),
            };
            Some((lock.renamed(edit.name.clone()), true))
        };
        let (Some(here), Some(there)) = (changed(true), changed(false)) else {
            return false;
        };
        let is_apart = |(lock, is_changed): &(Lock, bool)| {
            let mut others = self.others.iter();
            !is_changed || others.all(|other| lock.collision(other).is_none())
        };
        here.0.collision(&there.0).is_none() && is_apart(&here) && is_apart(&there)
    }

    fn of_keys(&self) -> Advice {
        let mut options = Vec::new();
        let shapes = self.shapes(&mut options);
        let share = self.share(&mut options);
        let word = self.word(&mut options);
        let text = match shapes {
            Some(shapes) if self.is_one_form() => {
                format!("{shapes}; else, {share}; if not, {word}")
            }
            Some(shapes) => format!("{shapes}; if it is any text, {word}"),
            None => format!("{share}; if not, {word}"),
        };
        Advice { text, options }
    }

    fn is_one_form(&self) -> bool {
        patterns(self.here, self.there).is_some_and(|(one, other)| one.same_form(other))
    }

    fn share(&self, options: &mut Vec<Vec<Edit>>) -> String {
        let (here, there) = (self.here, self.there);
        if !self.is_one_form() {
            return "if they are one lock, write one key and the same `name = \"…\"` at both, or declare it once"
                .to_owned();
        }
        match (here.declared(), there.declared()) {
            (None, Some(declared)) => {
                return format!("if they are one lock, write `{declared}` instead of this pattern");
            }
            (Some(declared), None) => {
                let item = there.item;
                return format!(
                    "if they are one lock, write `{declared}` instead of the pattern at {item}"
                );
            }
            _ => {}
        }
        if here.written != there.written {
            return "if they are one lock, give both the same `name = \"…\"` or declare it once"
                .to_owned();
        }
        match self.shared_name() {
            Some((name, edits)) => {
                let at = match (here.lock.name(), there.lock.name()) {
                    (None, None) => "at both".to_owned(),
                    (None, Some(_)) => "here as well".to_owned(),
                    _ => format!("at {} as well", there.item),
                };
                options.push(edits);
                format!("if they are one lock, write `name = \"{name}\"` {at}")
            }
            None => "if they are one lock, give both the same `name = \"…\"`".to_owned(),
        }
    }

    fn shared_name(&self) -> Option<(String, Vec<Edit>)> {
        let edit = |is_here: bool, name: &str| Edit {
            is_here,
            key: None,
            name: Some(name.to_owned()),
        };
        let (names, missing): (Vec<String>, &[bool]) =
            match (self.here.lock.name(), self.there.lock.name()) {
                (None, None) => (word::names(self.here), &[true, false]),
                (None, Some(name)) => (vec![name.to_owned()], &[true]),
                (Some(name), None) => (vec![name.to_owned()], &[false]),
                (Some(_), Some(_)) => return None,
            };
        names.into_iter().find_map(|name| {
            let edits: Vec<Edit> = missing.iter().map(|&at| edit(at, &name)).collect();
            self.solves(&edits).then_some((name, edits))
        })
    }

    fn word(&self, options: &mut Vec<Vec<Edit>>) -> String {
        // A word that distinguishes a key stays.
        let order = match (word::first(self.here), word::first(self.there)) {
            (Some(_), None) => [false, true],
            _ => [true, false],
        };
        for is_here in order {
            let side = self.side(is_here);
            for key in word::keys(side) {
                let edits = vec![Edit::key(is_here, key.clone())];
                if self.solves(&edits) {
                    options.push(edits);
                    return if is_here {
                        format!(
                            "start one key with its own word, which makes it another lock: `{key}`"
                        )
                    } else {
                        format!(
                            "start the other key with its own word, at {}, which makes it another lock: `{key}`",
                            side.item
                        )
                    };
                }
            }
        }
        "start one of the keys with its own word, at every site of that lock".to_owned()
    }
}

/// The patterns of both, if both have one. Pairs must have equal first halves.
fn patterns<'a>(here: &'a Side<'_>, there: &'a Side<'_>) -> Option<(&'a Pattern, &'a Pattern)> {
    let is_one_half = here.lock.first_half() == there.lock.first_half();
    let patterns = (here.lock.pattern()?, there.lock.pattern()?);
    is_one_half.then_some(patterns)
}
