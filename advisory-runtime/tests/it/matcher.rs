//! A matcher of a text against a language, atom by atom. It shares no code with the search for overlaps.

use advisory_pattern::{Atom, Repeat};
use std::collections::HashSet;

/// Returns whether the atoms read the text: all places that they can be at, character by character.
pub(crate) fn reads(atoms: &[Atom], text: &str) -> bool {
    let mut at = HashSet::new();
    reach(atoms, 0, &mut at);
    for c in text.chars() {
        let mut next = HashSet::new();
        for place in at {
            let Some(atom) = atoms.get(place) else {
                continue;
            };
            let to = match atom.repeat {
                Repeat::One | Repeat::Optional => place + 1,
                Repeat::Star => place,
                Repeat::Branch(_) | Repeat::Skip(_) => continue,
            };
            if atom.chars.contains(c) {
                reach(atoms, to, &mut next);
            }
        }
        at = next;
    }
    at.contains(&atoms.len())
}

/// Adds the place and those that are reached from it without reading.
fn reach(atoms: &[Atom], place: usize, at: &mut HashSet<usize>) {
    if !at.insert(place) {
        return;
    }
    match atoms.get(place).map(|atom| atom.repeat) {
        None | Some(Repeat::One) => {}
        Some(Repeat::Optional | Repeat::Star) => reach(atoms, place + 1, at),
        Some(Repeat::Branch(n)) => {
            reach(atoms, place + 1, at);
            reach(atoms, place + 1 + usize::from(n), at);
        }
        Some(Repeat::Skip(n)) => reach(atoms, place + 1 + usize::from(n), at),
    }
}
