//! The texts that a pattern can render, in a form that a search can walk.
//!
//! A chain of atoms, read from left to right, each marked with the part of the pattern that it
//! belongs to. Every step goes forward, except that a star can stay at its position; this keeps the
//! searches in `overlap` and `shortest_key` short.

pub(crate) mod ambiguity;
pub(crate) mod overlap;
pub(crate) mod shortest_key;
pub(crate) mod witness;

use crate::pattern::atom::{Atom, Repeat};
use crate::pattern::char_set::CharSet;
use crate::pattern::shape::Shape;
use crate::pattern::{Part, Pattern, Placeholder};

/// The set of keys that a pattern can render, with the part of the pattern that each character
/// belongs to.
///
/// A superset if a shape's atoms are one; what [`overlap`](crate::overlap) and
/// [`ambiguity`](crate::ambiguity()) say about the set is exact. A placeholder that is written
/// twice counts as two: the language does not know that their values are equal.
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Language, Shape, overlap, parse};
///
/// let pattern = parse("booking:<room>:<day: date>")?;
/// // The type of `room` says that it is an integer.
/// let language: Language = pattern.language(|_| Shape::Int);
/// assert!(overlap(&language, &parse("booking:7:2025-01-15")?.language(|_| Shape::Text)));
/// assert!(!overlap(&language, &parse("booking:blue:2025-01-15")?.language(|_| Shape::Text)));
/// # Ok::<(), Vec<advisory_pattern::PatternError>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Language {
    atoms: Vec<Atom>,
    owners: Vec<usize>,
    /// A name for each placeholder, none for text.
    names: Vec<Option<String>>,
    /// From here on every atom is read exactly once, and no jump ends after it.
    tail: usize,
}

impl Language {
    /// Chains parts: a placeholder's name, or none for text, with its atoms. A jump out of its part
    /// ends at the part's end.
    ///
    /// For patterns use [`Pattern::language`]; this is for a language that no shape describes.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = (Option<String>, &'a [Atom])>) -> Self {
        let mut language = Self {
            atoms: Vec::new(),
            owners: Vec::new(),
            names: Vec::new(),
            tail: 0,
        };
        for (name, atoms) in parts {
            language.push(name, atoms);
        }
        language
    }

    fn push(&mut self, name: Option<String>, atoms: &[Atom]) {
        let owner = self.names.len();
        self.names.push(name);
        for (i, &atom) in atoms.iter().enumerate() {
            let most = u8::try_from(atoms.len() - i - 1).unwrap_or(u8::MAX);
            let repeat = match atom.repeat {
                Repeat::Branch(n) => Repeat::Branch(n.min(most)),
                Repeat::Skip(n) => Repeat::Skip(n.min(most)),
                read => read,
            };
            self.atoms.push(Atom { repeat, ..atom });
            self.owners.push(owner);
            let jumps = self.silent(self.atoms.len() - 1);
            self.tail = jumps.into_iter().flatten().fold(self.tail, usize::max);
        }
    }

    /// Returns the atoms in order.
    #[must_use]
    pub fn atoms(&self) -> &[Atom] {
        &self.atoms
    }

    pub(crate) fn len(&self) -> usize {
        self.atoms.len()
    }

    pub(crate) fn tail(&self) -> usize {
        self.tail
    }

    pub(crate) fn owner(&self, atom: usize) -> usize {
        self.owners[atom]
    }

    /// The characters of the atom, if it is read exactly once and is not a jump.
    pub(crate) fn fixed(&self, at: usize) -> Option<CharSet> {
        let atom = self.atoms.get(at)?;
        matches!(atom.repeat, Repeat::One).then_some(atom.chars)
    }

    /// The positions at which the language continues from `at` without reading.
    pub(crate) fn silent(&self, at: usize) -> [Option<usize>; 2] {
        match self.atoms.get(at).map(|atom| atom.repeat) {
            None | Some(Repeat::One) => [None, None],
            Some(Repeat::Optional | Repeat::Star) => [Some(at + 1), None],
            Some(Repeat::Branch(n)) => [Some(at + 1), Some(at + 1 + usize::from(n))],
            Some(Repeat::Skip(n)) => [Some(at + 1 + usize::from(n)), None],
        }
    }

    /// The characters that are read at `at`, and the position at which the language continues after
    /// them.
    pub(crate) fn reads(&self, at: usize) -> Option<(CharSet, usize)> {
        let atom = self.atoms.get(at)?;
        match atom.repeat {
            Repeat::One | Repeat::Optional => Some((atom.chars, at + 1)),
            Repeat::Star => Some((atom.chars, at)),
            Repeat::Branch(_) | Repeat::Skip(_) => None,
        }
    }

    /// The values of one reading, given which atom read each character of the key.
    pub(crate) fn values(&self, key: &[(usize, char)]) -> Vec<(String, String)> {
        let named = |part| {
            let of_part = key.iter().filter(|(atom, _)| self.owners[*atom] == part);
            let value = of_part.map(|&(_, c)| c).collect();
            Some((self.names[part].clone()?, value))
        };
        (0..self.names.len()).filter_map(named).collect()
    }

    /// This language with other atoms for each placeholder that takes any word; `atoms` gets the
    /// number of such placeholders before it.
    pub(crate) fn narrowed(&self, atoms: impl Fn(usize, CharSet) -> Vec<Atom>) -> Self {
        let mut narrowed = Self::of_parts([]);
        let mut free = 0;
        let mut start = 0;
        for (part, name) in self.names.iter().enumerate() {
            let end = start + self.owners[start..].partition_point(|&owner| owner == part);
            let own = &self.atoms[start..end];
            start = end;
            match own {
                [any] if any.repeat == Repeat::Star && any.chars.has_words() => {
                    narrowed.push(name.clone(), &atoms(free, any.chars));
                    free += 1;
                }
                own => narrowed.push(name.clone(), own),
            }
        }
        narrowed
    }
}

impl Pattern {
    /// Returns the language of a pattern; `shape_of` is asked for each placeholder that has no
    /// shape written.
    #[must_use]
    pub fn language(&self, shape_of: impl Fn(&Placeholder) -> Shape) -> Language {
        let mut language = Language::of_parts([]);
        for part in &self.parts {
            match part {
                Part::Text(text) => {
                    let atoms: Vec<_> = text.chars().map(|c| Atom::one(CharSet::only(c))).collect();
                    language.push(None, &atoms);
                }
                Part::Placeholder(placeholder) => {
                    let shape = placeholder.rendered_shape(&shape_of);
                    language.push(Some(placeholder.name()), shape.atoms());
                }
            }
        }
        language
    }
}
