//! The mutants of a package, as cargo-mutants lists them.

use crate::{Failure, stdout_of};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// One mutant. Its number is its place in the list, from 1.
pub(crate) struct Mutant {
    /// What cargo-mutants calls it: the file, the place and the change.
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) genre: String,
    pub(crate) replacement: String,
    pub(crate) start: Position,
}

/// A line and a column, both from 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position(pub(crate) usize, pub(crate) usize);

impl From<proc_macro2::LineColumn> for Position {
    fn from(place: proc_macro2::LineColumn) -> Self {
        Self(place.line, place.column + 1)
    }
}

pub(crate) fn list(root: &Path, package: &str, files: &[String]) -> Result<Vec<Mutant>, Failure> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "--package", package]);
    for file in files {
        command.args(["--file", file]);
    }
    let listed: Vec<Value> = serde_json::from_str(&stdout_of(command.current_dir(root))?)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap_or_default());
    let mutants = listed.iter().map(|listed| {
        let start = &listed["span"]["start"];
        Ok(Mutant {
            name: text(&listed["name"]),
            file: text(&listed["file"]),
            genre: text(&listed["genre"]),
            replacement: text(&listed["replacement"]),
            start: Position(number(&start["line"])?, number(&start["column"])?),
        })
    });
    mutants.collect()
}
