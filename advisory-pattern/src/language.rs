//! Which texts can a pattern render, in a form that a search can walk?
//!
//! A chain of atoms, read from left to right, each marked with the part of the pattern it came from. Moves only go forward, apart
//! from a star that stays in place; that is what makes the searches in `overlap` and `search` short.

use crate::{Class, Part, Pattern, Placeholder, Shape};

/// Says how often an atom's class is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Once.
    One,
    /// Once or not at all.
    Optional,
    /// Any number of times, also not at all.
    Star,
    /// Never: go on at the next atom, or pass over that many. The class is not used.
    Branch(u8),
    /// Never: pass over that many atoms. The class is not used.
    Skip(u8),
}

/// Names one step of a language: a class of characters, and how often it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atom {
    /// What is read.
    pub class: Class,
    /// How often.
    pub repeat: Repeat,
}

impl Atom {
    /// Reads one character of the class.
    #[must_use]
    pub const fn one(class: Class) -> Self {
        let repeat = Repeat::One;
        Self { class, repeat }
    }

    /// Reads at most one character of the class.
    #[must_use]
    pub const fn optional(class: Class) -> Self {
        let repeat = Repeat::Optional;
        Self { class, repeat }
    }

    /// Reads any number of characters of the class.
    #[must_use]
    pub const fn star(class: Class) -> Self {
        let repeat = Repeat::Star;
        Self { class, repeat }
    }

    /// Goes on at the next atom, or passes over `atoms`: a choice between two texts.
    #[must_use]
    pub const fn branch(atoms: u8) -> Self {
        Self {
            class: Class::NONE,
            repeat: Repeat::Branch(atoms),
        }
    }

    /// Passes over `atoms`: the end of a choice's first text.
    #[must_use]
    pub const fn skip(atoms: u8) -> Self {
        Self {
            class: Class::NONE,
            repeat: Repeat::Skip(atoms),
        }
    }
}

/// Names the set of keys that a pattern can render, with the pattern's part that each character belongs to.
///
/// A superset where a shape is one; what [`overlap`](crate::overlap) and [`ambiguity`](crate::ambiguity()) say about the set is
/// exact. A placeholder written twice counts as two: that its values are equal is not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Language {
    atoms: Vec<Atom>,
    owners: Vec<usize>,
    /// A name for each placeholder, none for text.
    names: Vec<Option<String>>,
    /// From here on every atom is read once, and no jump lands behind it.
    tail: usize,
}

impl Language {
    /// Chains parts: a placeholder's name, or none for text, with its atoms. A jump out of its part ends at the part's end.
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

    /// Gives the atoms in order.
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

    /// The atom, if it is read exactly once and leads nowhere else.
    pub(crate) fn fixed(&self, at: usize) -> Option<Class> {
        let atom = self.atoms.get(at)?;
        matches!(atom.repeat, Repeat::One).then_some(atom.class)
    }

    /// Where the language goes on from `at` without reading.
    pub(crate) fn silent(&self, at: usize) -> [Option<usize>; 2] {
        match self.atoms.get(at).map(|atom| atom.repeat) {
            None | Some(Repeat::One) => [None, None],
            Some(Repeat::Optional | Repeat::Star) => [Some(at + 1), None],
            Some(Repeat::Branch(n)) => [Some(at + 1), Some(at + 1 + usize::from(n))],
            Some(Repeat::Skip(n)) => [Some(at + 1 + usize::from(n)), None],
        }
    }

    /// What is read at `at`, and where the language goes on after it.
    pub(crate) fn reads(&self, at: usize) -> Option<(Class, usize)> {
        let atom = self.atoms.get(at)?;
        match atom.repeat {
            Repeat::One | Repeat::Optional => Some((atom.class, at + 1)),
            Repeat::Star => Some((atom.class, at)),
            Repeat::Branch(_) | Repeat::Skip(_) => None,
        }
    }

    /// The values of one run: which atom read each character of the key.
    pub(crate) fn values(&self, key: &[(usize, char)]) -> Vec<(String, String)> {
        let named = |part| {
            let of_part = key.iter().filter(|(atom, _)| self.owners[*atom] == part);
            let value = of_part.map(|&(_, c)| c).collect();
            Some((self.names[part].clone()?, value))
        };
        (0..self.names.len()).filter_map(named).collect()
    }

    /// The same language with other atoms for each placeholder that takes any word; `atoms` is told how many came before.
    pub(crate) fn narrowed(&self, atoms: impl Fn(usize, Class) -> Vec<Atom>) -> Self {
        let mut narrowed = Self::of_parts([]);
        let mut free = 0;
        let mut start = 0;
        for (part, name) in self.names.iter().enumerate() {
            let end = start + self.owners[start..].partition_point(|&owner| owner == part);
            let own = &self.atoms[start..end];
            start = end;
            match own {
                [any] if any.repeat == Repeat::Star && any.class.has_words() => {
                    narrowed.push(name.clone(), &atoms(free, any.class));
                    free += 1;
                }
                own => narrowed.push(name.clone(), own),
            }
        }
        narrowed
    }
}

impl Pattern {
    /// Gives the language of a pattern; `shape_of` is asked for each placeholder that has no shape written.
    #[must_use]
    pub fn language(&self, shape_of: impl Fn(&Placeholder) -> Shape) -> Language {
        let mut language = Language::of_parts([]);
        for part in &self.parts {
            match part {
                Part::Text(text) => {
                    let atoms: Vec<_> = text.chars().map(|c| Atom::one(Class::only(c))).collect();
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
