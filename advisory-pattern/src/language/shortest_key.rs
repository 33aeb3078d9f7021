//! Search for the shortest key that two languages share.
//!
//! Searches pairs of positions breadth first, a character of the key at a time, and remembers where
//! each pair was reached from. With one language on both sides it finds two different splits of a
//! key. It is slower than `overlap`, so it runs only to show an overlap that was found.

use std::collections::HashMap;

use crate::language::Language;

/// A position in each language, and whether the two have given a character to different parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Positions {
    a: usize,
    b: usize,
    diverged: bool,
}

#[derive(Clone, Copy)]
enum Move {
    Silent(Positions),
    Read(Positions),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Any that both languages have.
    Shared,
    /// One with a character that the two sides give to different parts.
    Diverged,
}

/// The characters of a shortest shared key, each with the atoms that read it in `a` and in `b`.
pub(crate) fn shortest_key(a: &Language, b: &Language, goal: Goal) -> Option<Vec<Step>> {
    let start = Positions {
        a: 0,
        b: 0,
        diverged: false,
    };
    let end = Positions {
        a: a.len(),
        b: b.len(),
        diverged: goal == Goal::Diverged,
    };
    let mut came_from = HashMap::from([(start, None)]);
    let mut level = vec![start];
    while !level.is_empty() {
        let mut done = 0;
        while let Some(&at) = level.get(done) {
            done += 1;
            let a_moves = a.silent(at.a).map(|to| to.map(|a| Positions { a, ..at }));
            let b_moves = b.silent(at.b).map(|to| to.map(|b| Positions { b, ..at }));
            for to in a_moves.into_iter().chain(b_moves).flatten() {
                came_from.entry(to).or_insert_with(|| {
                    level.push(to);
                    Some(Move::Silent(at))
                });
            }
        }
        if came_from.contains_key(&end) {
            return Some(retrace(a, b, end, &came_from));
        }
        let mut longer = Vec::new();
        for at in level {
            let (Some((a_chars, a_to)), Some((b_chars, b_to))) = (a.reads(at.a), b.reads(at.b))
            else {
                continue;
            };
            if !a_chars.intersects(b_chars) {
                continue;
            }
            let splits = goal == Goal::Diverged && a.owner(at.a) != b.owner(at.b);
            let to = Positions {
                a: a_to,
                b: b_to,
                diverged: at.diverged || splits,
            };
            came_from.entry(to).or_insert_with(|| {
                longer.push(to);
                Some(Move::Read(at))
            });
        }
        level = longer;
    }
    None
}

/// One character of a key, and the atoms that read it.
pub(crate) struct Step {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) c: char,
}

fn retrace(
    a: &Language,
    b: &Language,
    end: Positions,
    came_from: &HashMap<Positions, Option<Move>>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = end;
    while let Some(&Some(from)) = came_from.get(&at) {
        at = match from {
            Move::Silent(from) => from,
            Move::Read(from) => {
                steps.push((from.a, from.b));
                from
            }
        };
    }
    let mut free = 0;
    let read = |(at_a, at_b)| {
        let chars = a.reads(at_a)?.0.intersection(b.reads(at_b)?.0);
        let c = chars.pick(free)?;
        free += usize::from(chars.has_words());
        Some(Step {
            a: at_a,
            b: at_b,
            c,
        })
    };
    steps.into_iter().rev().filter_map(read).collect()
}
