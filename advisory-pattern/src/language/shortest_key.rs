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

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Any that both languages have.
    Shared,
    /// One with a character that the two sides give to different parts.
    Diverged,
}

/// The placeholders of one side, with their values.
type Values = Vec<(String, String)>;

/// A shortest shared key, and the values with which `a` and `b` render it.
pub(crate) fn shortest_key(
    a: &Language,
    b: &Language,
    goal: Goal,
) -> Option<(String, [Values; 2])> {
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
    // The positions before, and whether a character was read there.
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
                    Some((at, false))
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
                Some((at, true))
            });
        }
        level = longer;
    }
    None
}

fn retrace(
    a: &Language,
    b: &Language,
    end: Positions,
    came_from: &HashMap<Positions, Option<(Positions, bool)>>,
) -> (String, [Values; 2]) {
    let mut steps = Vec::new();
    let mut at = end;
    while let Some(&Some((from, is_read))) = came_from.get(&at) {
        if is_read {
            steps.push((from.a, from.b));
        }
        at = from;
    }
    let (mut key, mut of_a, mut of_b) = (String::new(), Vec::new(), Vec::new());
    let mut free = 0;
    for (at_a, at_b) in steps.into_iter().rev() {
        if let (Some((a_chars, _)), Some((b_chars, _))) = (a.reads(at_a), b.reads(at_b))
            && let chars = a_chars.intersection(b_chars)
            && let Some(c) = chars.pick(free)
        {
            free += usize::from(chars.has_words());
            key.push(c);
            of_a.push((at_a, c));
            of_b.push((at_b, c));
        }
    }
    (key, [a.values(&of_a), b.values(&of_b)])
}
