//! The order in which locks are taken, and the search for calls that can wait for each other.
//!
//! A program records each [`Edge`]: one lock held while another is requested. [`cycles`] finds
//! those that lead back to their start. A file has a line for each edge, so that several processes
//! can write to it.
//!
//! ```
//! use advisory_pattern::order::{Edge, cycles, message};
//!
//! // Two processes recorded these.
//! let lines = [
//!     "1\tlock\texclusive\troom:<id>\tsrc/book.rs:7\tlock\texclusive\taccount:<id>\tsrc/pay.rs:9",
//!     "1\tlock\texclusive\taccount:<id>\tsrc/refund.rs:5\tlock\texclusive\troom:<id>\tsrc/free.rs:3",
//! ];
//! let edges: Vec<Edge> = lines.into_iter().filter_map(Edge::decode).collect();
//! assert_eq!(cycles(&edges), [[0, 1]]);
//! let text = message(&[&edges[0], &edges[1]]);
//! assert!(text.starts_with("locks are taken in more than one order"));
//! ```

mod edge;
mod lock_names;

pub use edge::{Edge, End};
pub use lock_names::LockNames;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Finds the shortest cycle through each edge, as the indices of its edges; each cycle of locks
/// once.
///
/// An edge leads to another if it requests the lock that the other holds, unless both do so in
/// shared mode: then neither waits. Each edge of a cycle is another transaction's, so no two of
/// them have a gate in common, and a cycle of one edge has none.
#[must_use]
pub fn cycles(edges: &[Edge]) -> Vec<Vec<usize>> {
    let names = LockNames::of(edges);
    let mut numbers = BTreeMap::new();
    let mut number = |end: &End| {
        let next = numbers.len();
        *numbers
            .entry((end.is_lease, names.name(&end.lock)))
            .or_insert(next)
    };
    let ends: Vec<(usize, usize)> = edges
        .iter()
        .map(|edge| (number(&edge.held), number(&edge.asked)))
        .collect();
    let mut from = vec![Vec::new(); numbers.len()];
    for (edge, (held, _)) in ends.iter().enumerate() {
        from[*held].push(edge);
    }
    let next = |edge: usize| {
        let successors = from[ends[edge].1].iter().copied();
        successors.filter(move |next| !(edges[edge].asked.is_shared && edges[*next].held.is_shared))
    };
    let gates: Vec<BTreeSet<&String>> = edges
        .iter()
        .map(|edge| edge.gates.iter().collect())
        .collect();
    let no_gates = vec![BTreeSet::new(); edges.len()];
    let mut lock_cycles = BTreeSet::new();
    let mut cycles = Vec::new();
    for start in 0..edges.len() {
        // Most edges are in no cycle at all.
        let Ok(Some(possible)) = search(start, &no_gates, &next) else {
            continue;
        };
        // If there are too many paths to search, the shortest cycle regardless of gates.
        let Some(cycle) = search(start, &gates, &next).unwrap_or(Some(possible)) else {
            continue;
        };
        // The same locks in the same order are one cycle, wherever it begins.
        let mut locks: Vec<usize> = cycle.iter().map(|edge| ends[*edge].0).collect();
        let lowest = locks.iter().enumerate().min_by_key(|(_, lock)| **lock);
        let lowest = lowest.map_or(0, |(at, _)| at);
        locks.rotate_left(lowest);
        if lock_cycles.insert(locks) {
            cycles.push(cycle);
        }
    }
    cycles
}

/// The number of states that are searched for one cycle, in addition to one for each edge. Each
/// lock that is taken can double the number of states.
const MOST_STATES: usize = 1_000;

/// The shortest cycle through `start` that gates do not rule out, as the indices of its edges.
fn search<I: Iterator<Item = usize>>(
    start: usize,
    gates: &[BTreeSet<&String>],
    next: &impl Fn(usize) -> I,
) -> Result<Option<Vec<usize>>, TooMany> {
    // The edges that can follow depend on the last one and the gates of all, so each edge is
    // visited once for each set of gates.
    let first = (start, gates[start].clone());
    let mut before = BTreeMap::from([(first.clone(), None)]);
    let mut queue = VecDeque::from([first]);
    while let Some(state) = queue.pop_front() {
        for successor in next(state.0) {
            if successor == start && (state.0 != start || state.1.is_empty()) {
                let mut cycle = vec![state.0];
                let mut step = &state;
                while let Some(Some(earlier)) = before.get(step) {
                    step = earlier;
                    cycle.push(step.0);
                }
                cycle.reverse();
                return Ok(Some(cycle));
            }
            let own = &gates[successor];
            if successor == start || !state.1.is_disjoint(own) {
                continue;
            }
            let reached = (successor, &state.1 | own);
            if !before.contains_key(&reached) {
                if before.len() == gates.len() + MOST_STATES {
                    return Err(TooMany);
                }
                before.insert(reached.clone(), Some(state.clone()));
                queue.push_back(reached);
            }
        }
    }
    Ok(None)
}

struct TooMany;

/// Describes a cycle and each of its edges.
#[must_use]
pub fn message(cycle: &[&Edge]) -> String {
    let what = match cycle {
        [one] if one.held.is_shared && !one.asked.is_shared => format!(
            "{} is requested exclusively while it is held shared: two calls that both do this wait for each other",
            one.asked
        ),
        [one] => format!(
            "{} is requested while another key of it is held: two calls in opposite order wait for each other",
            one.asked
        ),
        _ => "locks are taken in more than one order: calls can wait for each other".to_owned(),
    };
    // A place begins with the function, where it is known.
    let place = |preposition: &str, place: &str| match place {
        "" => format!("{preposition} an unknown place"),
        place if place.starts_with('`') => format!("by {place}"),
        place => format!("{preposition} {place}"),
    };
    let ways = cycle.iter().map(|Edge { held, asked, .. }| {
        let (held_by, asked_by) = (place("since", &held.place), place("at", &asked.place));
        format!("  {held} → {asked}\n     held {held_by}, asked for {asked_by}\n")
    });
    let ways: String = ways.collect();
    format!(
        "{what}\n{ways}  = help: take them in one call, `keys = [\"…\", \"…\"]`, which sorts them; or always in one order; or under one lock with a fixed key"
    )
}

#[cfg(test)]
mod tests {
    use super::{Edge, End, cycles, message};

    fn edge(held: &str, asked: &str) -> Edge {
        let end = |text: &str| {
            let shared = text.strip_prefix("shared ");
            let lock = shared.unwrap_or(text);
            let lease = lock.strip_prefix("lease ");
            End {
                lock: lease.unwrap_or(lock).to_owned(),
                is_lease: lease.is_some(),
                is_shared: shared.is_some(),
                place: format!("src/{}.rs:1", &lock[..1]),
            }
        };
        Edge {
            held: end(held),
            asked: end(asked),
            gates: Vec::new(),
        }
    }

    fn under(gates: &[&str], mut edge: Edge) -> Edge {
        edge.gates = gates.iter().map(ToString::to_string).collect();
        edge
    }

    fn found(edges: &[(&str, &str)]) -> Vec<Vec<usize>> {
        let edges: Vec<Edge> = edges
            .iter()
            .map(|(held, asked)| edge(held, asked))
            .collect();
        cycles(&edges)
    }

    #[test]
    fn one_order_is_no_cycle_and_two_are_one() {
        assert!(found(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
        assert_eq!(found(&[("a", "b"), ("b", "a")]), [[0, 1]]);
        assert_eq!(
            found(&[("x", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "y")]),
            [[1, 2, 3]]
        );
    }

    #[test]
    fn an_inferred_shape_equals_the_written_one_of_another_site() {
        let two = [
            ("night:<room: int>:<night>", "b"),
            ("b", "night:<a.room>:<nights*: date>"),
        ];
        assert_eq!(found(&two), [[0, 1]]);
        assert_eq!(found(&[("a:<x>", "a:<y: int>")]), [[0]]);
        // The third can be either of the two.
        assert!(found(&[("a:<x: int>", "a:<x: uuid>"), ("a:<x: uuid>", "a:<x>")]).is_empty());
    }

    #[test]
    fn who_shares_a_lock_waits_for_nobody_who_shares_it() {
        assert!(found(&[("shared a", "shared b"), ("shared b", "shared a")]).is_empty());
        assert!(found(&[("shared a", "shared a")]).is_empty());
        // Each waits: one for `b`, the other for `a`.
        assert_eq!(found(&[("shared a", "b"), ("shared b", "a")]), [[0, 1]]);
        assert_eq!(found(&[("a", "shared b"), ("b", "shared a")]), [[0, 1]]);
        // Only one of them does.
        assert!(found(&[("shared a", "b"), ("b", "shared a")]).is_empty());
        assert_eq!(found(&[("shared a", "a")]), [[0]]);
    }

    #[test]
    fn a_lease_is_no_advisory_lock() {
        assert!(found(&[("lease a", "b"), ("b", "a")]).is_empty());
        assert_eq!(found(&[("lease a", "b"), ("b", "lease a")]), [[0, 1]]);
    }

    #[test]
    fn only_a_lock_around_both_sides_rules_a_cycle_out() {
        let [ab, ba] = [edge("a", "b"), edge("b", "a")];
        let both = [under(&["g", "h"], ab.clone()), under(&["g"], ba.clone())];
        assert!(cycles(&both).is_empty());
        let one = [under(&["g"], ab.clone()), under(&["h"], ba.clone())];
        assert_eq!(cycles(&one), [[0, 1]]);
        let own = edge("a:<x>", "a:<y>");
        assert!(cycles(&[under(&["g"], own.clone())]).is_empty());
        assert_eq!(cycles(&[under(&["g"], own), ba, ab]), [[1, 2]]);
    }

    #[test]
    fn a_longer_cycle_is_found_when_a_shorter_one_is_ruled_out() {
        let edges = [
            under(&["g"], edge("a", "b")),
            under(&["g"], edge("b", "a")),
            under(&["h"], edge("b", "c")),
            edge("c", "a"),
        ];
        assert_eq!(cycles(&edges), [[0, 2, 3]]);
        // Both the shorter way to `c` and the way back are under `g`.
        let edges = [
            edge("a", "b"),
            under(&["g"], edge("b", "c")),
            edge("b", "d"),
            edge("d", "c"),
            under(&["g"], edge("c", "a")),
        ];
        assert_eq!(cycles(&edges), [[0, 2, 3, 4]]);
    }

    #[test]
    fn nested_locks_are_searched_quickly() {
        let lock = |number: usize| format!("lock-{number}");
        let mut edges = Vec::new();
        for asked in 0..60 {
            for held in 0..asked {
                let gates: Vec<String> = (0..asked).map(lock).collect();
                let gates: Vec<&str> = gates.iter().map(String::as_str).collect();
                edges.push(under(&gates, edge(&lock(held), &lock(asked))));
            }
        }
        assert!(cycles(&edges).is_empty());
        // Too many ways to rule it out.
        let taken_alone =
            |gate: &str, held: usize, asked: usize| under(&[gate], edge(&lock(held), &lock(asked)));
        let mut edges: Vec<Edge> = (0..20)
            .flat_map(|at| {
                let gates = [lock(at), lock(at + 100)];
                gates.map(|gate| taken_alone(&gate, at, at + 1))
            })
            .collect();
        edges.push(edge(&lock(20), &lock(0)));
        assert!(!cycles(&edges).is_empty());
    }

    #[test]
    fn a_line_is_read_as_it_was_written_and_nothing_else_is_read() {
        for edge in [
            edge("a:<x>", "shared lease b"),
            under(&["g (1)", "h (2)"], edge("shared 7", "(1, 2)")),
        ] {
            let line = edge.encode();
            assert_eq!(Edge::decode(line.trim_end_matches('\n')), Some(edge));
        }
        let mut odd = edge("a", "b");
        odd.held.lock = "a\tb\nc".into();
        assert_eq!(odd.encode().lines().count(), 1);
        assert!(
            Edge::decode(odd.encode().trim_end()).is_some_and(|edge| edge.held.lock == "a b c")
        );
        for line in [
            "",
            "2\tlock",
            "1\tlock\texclusive\ta\t",
            "1\tx\texclusive\ta\t\tlock\tshared\tb\t",
        ] {
            assert_eq!(Edge::decode(line), None, "{line}");
        }
    }

    #[test]
    fn a_message_names_functions_and_what_waits() {
        let mut named = edge("a", "b");
        named.held.place = "`outer` (src/a.rs:1)".to_owned();
        named.asked.place = "`inner` (src/b.rs:9)".to_owned();
        let text = message(&[&named, &edge("b", "a")]);
        let way = "held by `outer` (src/a.rs:1), asked for by `inner` (src/b.rs:9)\n";
        assert!(text.contains(way), "{text}");
        let upgrade = message(&[&edge("shared a", "a")]);
        let said = "`a` is requested exclusively while it is held shared";
        assert!(upgrade.starts_with(said), "{upgrade}");
        let own = edge("a:<x>", "a:<y>");
        let text = message(&[&own]);
        assert!(text.contains("another key of it"), "{text}");
    }
}
