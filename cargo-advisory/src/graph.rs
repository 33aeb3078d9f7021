//! The recorded lock order as a graph, for Graphviz or for Mermaid.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::{env, fs};

use advisory_pattern::order::{Edge, End, LockNames, cycles, message};
use clap::{Args, ValueEnum};

use crate::cli::{CODES, Output};
use crate::failure::{Failure, Result, bail};
use crate::screen::{ERROR, note};
use crate::text::printable;

/// The environment variable that names the file to which a program records.
const ORDER_FILE: &str = "ADVISORY_LOCK_ORDER";

/// Draws the order in which tests acquire locks; fails if there is more than one
///
/// The graph is DOT for Graphviz, or Mermaid, which code hosts draw. Debug builds append their
/// order to the file that `ADVISORY_LOCK_ORDER` names:
/// `ADVISORY_LOCK_ORDER="$PWD/target/lock-order" cargo test`. Delete the file first to record only
/// one run.
///
/// The arrows of a cycle are red. The cycle is also reported on the standard error: its calls can
/// wait for each other.
#[derive(Args)]
#[command(after_help = CODES)]
pub(crate) struct Arguments {
    #[arg(
        long,
        value_name = "FILE",
        help = "The record [default: the file that `ADVISORY_LOCK_ORDER` names]"
    )]
    from: Vec<PathBuf>,
    /// The output format
    #[arg(long, default_value = "dot")]
    format: Format,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Dot,
    Mermaid,
}

impl Arguments {
    /// Returns `true` if there is only one order.
    pub(crate) fn run(&self) -> Result<bool> {
        let mut files = self.from.clone();
        if files.is_empty() {
            let named = env::var_os(ORDER_FILE).filter(|file| !file.is_empty());
            files.extend(named.map(PathBuf::from));
        }
        if files.is_empty() {
            bail!(
                "no record: run `{ORDER_FILE}=\"$PWD/target/lock-order\" cargo test`, then `cargo advisory graph --from \
                 target/lock-order`"
            );
        }
        let edges = read(&files)?;
        if edges.is_empty() {
            note("note: the record is empty: no lock was asked for while another was held\n");
        }
        let cycles = cycles(&edges);
        let graph = Graph::new(&edges, &cycles);
        let drawn = match self.format {
            Format::Dot => graph.draw_dot(),
            Format::Mermaid => graph.draw_mermaid(),
        };
        self.output.write(&printable(&drawn))?;
        for message in messages(&edges, &cycles) {
            note(&format!("{ERROR}error{ERROR:#}: {}\n", printable(&message)));
        }
        Ok(cycles.is_empty())
    }
}

/// Reads records, and keeps the first place of each edge.
pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<Edge>> {
    let mut edges = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::file(
                file,
                format_args!(
                    "there is no such record: `{ORDER_FILE}=\"$PWD/target/lock-order\" cargo test` writes it, if a test of a debug \
                     build takes a lock that it can wait for"
                ),
            ),
            _ => Failure::unread(file, error),
        })?;
        for (at, line) in text.lines().enumerate() {
            let at = at + 1;
            edges.push(Edge::decode(line).ok_or_else(|| {
                let why = format!(
                    "line {at} is not a recorded edge: name the file that `{ORDER_FILE}` named"
                );
                Failure::file(file, why)
            })?);
        }
    }
    let names = LockNames::of(&edges);
    let mut first = BTreeMap::new();
    for edge in edges {
        let ends = [&edge.held, &edge.asked].map(|end| (node(end, &names), end.is_shared));
        let known = first.entry(ends).and_modify(|first: &mut Edge| {
            first.narrow_gates(&edge.gates);
        });
        known.or_insert(edge);
    }
    Ok(first.into_values().collect())
}

pub(crate) fn messages(edges: &[Edge], cycles: &[Vec<usize>]) -> Vec<String> {
    let of_cycle = |cycle: &Vec<usize>| {
        let cycle: Vec<&Edge> = cycle.iter().map(|at| &edges[*at]).collect();
        message(&cycle)
    };
    cycles.iter().map(of_cycle).collect()
}

/// A lock, independent of the names of its placeholders: its name, and `true` for a lease.
type Node = (String, bool);

fn node(end: &End, names: &LockNames) -> Node {
    (names.name(&end.lock), end.is_lease)
}

/// The locks as boxes, and the edges as arrows between them.
pub(crate) struct Graph<'e> {
    /// By their numbers.
    pub(crate) locks: Vec<&'e End>,
    /// In the order in which they are drawn, each with its number.
    pub(crate) boxes: Vec<(usize, &'e End)>,
    pub(crate) arrows: Vec<Arrow>,
}

pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The places at which each lock was asked for.
    pub(crate) label: String,
    pub(crate) is_red: bool,
}

impl<'e> Graph<'e> {
    pub(crate) fn new(edges: &'e [Edge], cycles: &[Vec<usize>]) -> Self {
        let names = LockNames::of(edges);
        let (mut locks, mut numbers) = (Vec::new(), BTreeMap::new());
        for end in edges.iter().flat_map(|edge| [&edge.held, &edge.asked]) {
            numbers.entry(node(end, &names)).or_insert_with(|| {
                locks.push(end);
                locks.len() - 1
            });
        }
        let number = |end: &End| numbers[&node(end, &names)];
        let red: BTreeSet<usize> = cycles.iter().flatten().copied().collect();
        let mode = |end: &End| if end.is_shared { " (shared)" } else { "" };
        let side = |end: &End| format!("{}{}", end.place, mode(end));
        let arrows = edges.iter().enumerate().map(|(at, edge)| Arrow {
            from: number(&edge.held),
            to: number(&edge.asked),
            label: format!("{} → {}", side(&edge.held), side(&edge.asked)),
            is_red: red.contains(&at),
        });
        let boxes = |number: &usize| (*number, locks[*number]);
        Self {
            arrows: arrows.collect(),
            boxes: numbers.values().map(boxes).collect(),
            locks,
        }
    }

    fn draw_dot(&self) -> String {
        let quoted =
            |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let mut drawn =
            format!("// {LEGEND}\ndigraph locks {{\n  rankdir=LR;\n  node [shape=box];\n");
        drawn.extend(self.boxes.iter().map(|(number, end)| {
            let shape = if end.is_lease { ", shape=ellipse" } else { "" };
            format!("  n{number} [label={}{shape}];\n", quoted(&end.lock))
        }));
        drawn.extend(self.arrows.iter().map(|arrow| {
            let red = ", color=red, fontcolor=red, penwidth=2";
            let red = if arrow.is_red { red } else { "" };
            let Arrow { from, to, .. } = arrow;
            let label = quoted(&arrow.label);
            format!("  n{from} -> n{to} [label={label}{red}];\n")
        }));
        drawn + "}\n"
    }

    fn draw_mermaid(&self) -> String {
        let mut drawn = format!("%% {LEGEND}\nflowchart LR\n");
        drawn.extend(self.boxes.iter().map(|(number, end)| {
            let (open, close) = if end.is_lease {
                ("([", "])")
            } else {
                ("[", "]")
            };
            format!("  n{number}{open}\"{}\"{close}\n", escaped(&end.lock))
        }));
        drawn.extend(self.arrows.iter().map(|arrow| {
            let Arrow { from, to, .. } = arrow;
            format!("  n{from} -->|\"{}\"| n{to}\n", escaped(&arrow.label))
        }));
        let red = self.arrows.iter().enumerate().filter(|it| it.1.is_red);
        drawn.extend(
            red.map(|(at, _)| format!("  linkStyle {at} stroke:red,color:red,stroke-width:2px\n")),
        );
        drawn
    }
}

/// A text in quotes of Mermaid, which interprets entities, HTML and Markdown there.
fn escaped(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || " :/,.()-→".contains(letter);
    let letters = text.chars().map(|letter| match letter {
        plain if is_plain(plain) => plain.to_string(),
        other => format!("#{};", u32::from(other)),
    });
    letters.collect()
}

pub(crate) const LEGEND: &str = "An arrow goes from a lock that was held to the one that was asked for. Red arrows form a cycle: a deadlock that \
     can happen.";
