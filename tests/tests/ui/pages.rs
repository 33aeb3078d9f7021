//! The pages of the documents.

use std::path::{Path, PathBuf};

pub(crate) const GUIDE: &str = "advisory-runtime/docs";

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == kind) {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub(crate) fn collect(folder: &Path, sources: &Path, found: &mut Vec<(String, String)>) {
    for path in files(folder, "rs") {
        let name = path.strip_prefix(sources).expect("a path below");
        found.push((name.to_string_lossy().into_owned(), read(&path)));
    }
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, sources, found);
        }
    }
}

/// The label and the target of a line that defines one.
pub(crate) fn definition(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ")
}

pub(crate) fn without_code(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            prose += line;
            prose.push('\n');
        }
    }
    prose
}
