//! How is the recorded order of locks drawn as a graph?

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::{env, fs};

use advisory_pattern::order::{Edge, End, LockNames, cycles, message};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::screen::{ERROR, note};
use crate::{cli, screen};

/// The environment variable that names the file to which a program records.
const ORDER_FILE: &str = "ADVISORY_LOCK_ORDER";

/// Runs `cargo advisory graph`; tells whether there is one order.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let mut files = cli::paths(matches, "from");
    if files.is_empty() {
        let named = env::var_os(ORDER_FILE).filter(|file| !file.is_empty());
        files.extend(named.map(PathBuf::from));
    }
    if files.is_empty() {
        return Err(Failure::Input(format!(
            "no record to read: run `{ORDER_FILE}=\"$PWD/target/lock-order\" cargo test`, then `cargo advisory graph --from \
             target/lock-order`"
        )));
    }
    let mut edges = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| Failure::unread(&file, error))?;
        for (at, line) in text.lines().enumerate() {
            let Some(edge) = Edge::decode(line) else {
                let at = at + 1;
                let why = format!(
                    "line {at} is no edge that this version can read: name the file that `{ORDER_FILE}` named"
                );
                return Err(Failure::file(&file, why));
            };
            edges.push(edge);
        }
    }
    let names = LockNames::of(&edges);
    let mut first = BTreeMap::new();
    for edge in edges {
        // Of the same edge at several places only the first is drawn.
        first.entry(identity(&edge, &names)).or_insert(edge);
    }
    let edges: Vec<Edge> = first.into_values().collect();
    let cycles = cycles(&edges);
    let to = cli::path(matches, "output").map(AsRef::as_ref);
    screen::write(to, &draw(&edges, &cycles))?;
    for cycle in &cycles {
        let cycle: Vec<&Edge> = cycle.iter().filter_map(|at| edges.get(*at)).collect();
        note(&format!("{ERROR}error{ERROR:#}: {}\n", message(&cycle)));
    }
    Ok(cycles.is_empty())
}

/// A lock, independent of its placeholders' names: its name, and whether it is a lease.
type Node = (String, bool);

fn node(end: &End, names: &LockNames) -> Node {
    (names.name(&end.lock), end.is_lease)
}

fn identity(edge: &Edge, names: &LockNames) -> [(Node, bool); 2] {
    [&edge.held, &edge.asked].map(|end| (node(end, names), end.is_shared))
}

/// Writes a graph for Graphviz; cycles are red.
fn draw(edges: &[Edge], cycles: &[Vec<usize>]) -> String {
    let names = LockNames::of(edges);
    let mut nodes: BTreeMap<Node, (usize, &End)> = BTreeMap::new();
    for end in edges.iter().flat_map(|edge| [&edge.held, &edge.asked]) {
        let next = nodes.len();
        nodes.entry(node(end, &names)).or_insert((next, end));
    }
    let number = |end: &End| {
        nodes
            .get(&node(end, &names))
            .map_or(0, |(number, _)| *number)
    };
    let boxes = nodes.values().map(|(number, end)| {
        let shape = if end.is_lease { ", shape=ellipse" } else { "" };
        format!("  n{number} [label={}{shape}];\n", quoted(&end.lock))
    });
    let red: BTreeSet<usize> = cycles.iter().flatten().copied().collect();
    let arrows = edges.iter().enumerate().map(|(at, edge)| {
        let Edge { held, asked } = edge;
        let mode = |end: &End| if end.is_shared { " (shared)" } else { "" };
        let label = format!(
            "{}{} → {}{}",
            held.place,
            mode(held),
            asked.place,
            mode(asked)
        );
        let red = if red.contains(&at) {
            ", color=red, fontcolor=red, penwidth=2"
        } else {
            ""
        };
        let (from, to) = (number(held), number(asked));
        format!("  n{from} -> n{to} [label={}{red}];\n", quoted(&label))
    });
    let arrows: String = arrows.collect();
    let boxes: String = boxes.collect();
    format!(
        "// An arrow: the lock at its tail was held while the one at its head was asked for. Red ones go round: a deadlock that can \
         happen.\ndigraph locks {{\n  rankdir=LR;\n  node [shape=box];\n{boxes}{arrows}}}\n"
    )
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
