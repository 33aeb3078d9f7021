//! An edge of the lock order, one lock held while another is requested, as a line of a file.

use std::fmt;

const VERSION: &str = "1";

/// One lock that was held while another was requested.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The lock that was held.
    pub held: End,
    /// The lock that was requested.
    pub asked: End,
    /// The locks that were held exclusively around it, every time: two edges that share one cannot
    /// wait for each other.
    ///
    /// Only a lock without placeholders in its key is a gate, because it is one lock every time.
    /// Each gate is the pattern and the number.
    pub gates: Vec<String>,
}

/// One end of an [`Edge`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// The key pattern, or a number.
    pub lock: String,
    /// True if it is a lease; a lease and an advisory lock never wait for each other.
    pub is_lease: bool,
    /// True if it was taken in shared mode.
    pub is_shared: bool,
    /// The place where the program requested it: `file:line`, in a locked function `` `function`
    /// (file:line)``; empty where that is unknown.
    pub place: String,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lease = if self.is_lease { "lease " } else { "" };
        let shared = if self.is_shared { " (shared)" } else { "" };
        write!(f, "{lease}`{}`{shared}", self.lock)
    }
}

impl Edge {
    /// Writes the edge as a line, including the newline.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut line = VERSION.to_owned();
        for end in [&self.held, &self.asked] {
            let kind = if end.is_lease { "lease" } else { "lock" };
            let mode = if end.is_shared { "shared" } else { "exclusive" };
            for field in [kind, mode, &end.lock, &end.place] {
                push_field(&mut line, field);
            }
        }
        for gate in &self.gates {
            push_field(&mut line, gate);
        }
        line.push('\n');
        line
    }

    /// Reads a line; `None` if it is not an edge of this version.
    #[must_use]
    pub fn decode(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        if fields.next() != Some(VERSION) {
            return None;
        }
        let mut end = || {
            Some(End {
                is_lease: one_of(fields.next()?, "lock", "lease")?,
                is_shared: one_of(fields.next()?, "exclusive", "shared")?,
                lock: fields.next()?.to_owned(),
                place: fields.next()?.to_owned(),
            })
        };
        Some(Self {
            held: end()?,
            asked: end()?,
            gates: fields.map(str::to_owned).collect(),
        })
    }

    /// Keeps only the gates that are in `again`, a later recording of this edge. Returns `true` if
    /// that removed some.
    pub fn narrow_gates(&mut self, again: &[String]) -> bool {
        let before = self.gates.len();
        self.gates.retain(|gate| again.contains(gate));
        self.gates.len() < before
    }
}

fn push_field(line: &mut String, field: &str) {
    line.push('\t');
    line.extend(field.chars().map(|c| if c.is_control() { ' ' } else { c }));
}

fn one_of(word: &str, no: &str, yes: &str) -> Option<bool> {
    (word == yes || word == no).then_some(word == yes)
}

#[cfg(test)]
mod tests {
    use super::Edge;

    #[test]
    fn gates_are_those_that_were_held_every_time() {
        let line = "1\tlock\texclusive\ta\t\tlock\texclusive\tb\t\tx\ty";
        let mut edge = Edge::decode(line).expect("an edge");
        assert!(!edge.narrow_gates(&["y", "z", "x"].map(str::to_owned)));
        assert_eq!(edge.gates, ["x", "y"]);
        assert!(edge.narrow_gates(&["y".to_owned()]));
        assert_eq!(edge.gates, ["y"]);
    }
}
