//! What is the shortest key that two languages share?
//!
//! Breadth first over pairs of places, a character of the key at a time, keeping where each pair was reached from. Run on one
//! language twice it finds two different splits of a key. Slower than `overlap`, and only needed to show what that found.

use std::collections::HashMap;

use crate::Language;

/// A place in either language, and whether the two have given a character to different parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    a: usize,
    b: usize,
    diverged: bool,
}

/// How a state was reached.
#[derive(Clone, Copy)]
enum Move {
    Silent(State),
    Read(State),
}

/// Which keys are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Any that both languages have.
    Shared,
    /// One whose characters the two runs give to different parts.
    Diverged,
}

/// The characters of a shortest shared key, each with the atoms that read it in `a` and in `b`.
pub(crate) fn shortest(a: &Language, b: &Language, want: Want) -> Option<Vec<Read>> {
    let start = State {
        a: 0,
        b: 0,
        diverged: false,
    };
    let goal = State {
        a: a.len(),
        b: b.len(),
        diverged: want == Want::Diverged,
    };
    let mut came_from = HashMap::from([(start, None)]);
    let mut level = vec![start];
    while !level.is_empty() {
        let mut done = 0;
        while let Some(&state) = level.get(done) {
            done += 1;
            let a_moves = a.silent(state.a).map(|to| to.map(|a| State { a, ..state }));
            let b_moves = b.silent(state.b).map(|to| to.map(|b| State { b, ..state }));
            for to in a_moves.into_iter().chain(b_moves).flatten() {
                came_from.entry(to).or_insert_with(|| {
                    level.push(to);
                    Some(Move::Silent(state))
                });
            }
        }
        if came_from.contains_key(&goal) {
            return Some(retrace(a, b, goal, &came_from));
        }
        let mut longer = Vec::new();
        for state in level {
            let (Some((a_class, a_to)), Some((b_class, b_to))) =
                (a.reads(state.a), b.reads(state.b))
            else {
                continue;
            };
            if !a_class.meets(b_class) {
                continue;
            }
            let splits = want == Want::Diverged && a.owner(state.a) != b.owner(state.b);
            let to = State {
                a: a_to,
                b: b_to,
                diverged: state.diverged || splits,
            };
            came_from.entry(to).or_insert_with(|| {
                longer.push(to);
                Some(Move::Read(state))
            });
        }
        level = longer;
    }
    None
}

/// One character of a key, and the atoms that read it.
pub(crate) struct Read {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) c: char,
}

fn retrace(
    a: &Language,
    b: &Language,
    goal: State,
    came_from: &HashMap<State, Option<Move>>,
) -> Vec<Read> {
    let mut places = Vec::new();
    let mut at = goal;
    while let Some(&Some(from)) = came_from.get(&at) {
        at = match from {
            Move::Silent(from) => from,
            Move::Read(from) => {
                places.push((from.a, from.b));
                from
            }
        };
    }
    let mut free = 0;
    let read = |(at_a, at_b)| {
        let class = a.reads(at_a)?.0.and(b.reads(at_b)?.0);
        let c = class.pick(free)?;
        free += usize::from(class.has_words());
        Some(Read {
            a: at_a,
            b: at_b,
            c,
        })
    };
    places.into_iter().rev().filter_map(read).collect()
}
