//! The modules of a crate use only those below them: `docs/architecture.md` has the order for the
//! runtime.

use crate::workspace::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../docs/architecture.md");

/// Which modules each top-level module of a crate names, with a file that does so.
struct Uses(BTreeMap<String, BTreeMap<String, PathBuf>>);

impl Uses {
    fn of(source: &Path) -> Self {
        let mut files = Vec::new();
        collect(source, &mut files);
        let module = |file: &Path| {
            let first = file.strip_prefix(source).ok()?.components().next()?;
            let name = first.as_os_str().to_str()?;
            Some(name.trim_end_matches(".rs").to_owned())
        };
        let modules: BTreeSet<String> = files.iter().filter_map(|file| module(file)).collect();
        // What the crate's root exports again.
        let mut homes = BTreeMap::new();
        let library = code(&source.join("lib.rs"));
        for at in library
            .match_indices("pub use ")
            .map(|(at, found)| at + found.len())
        {
            let paths = library[at..].split(';').next().unwrap_or_default();
            for path in paths_of(paths) {
                let names: Vec<&str> = path.split("::").collect();
                if let [home, .., name] = names[..] {
                    homes.insert(name.to_owned(), home.to_owned());
                }
            }
        }
        let mut graph: BTreeMap<String, BTreeMap<String, PathBuf>> = BTreeMap::new();
        for file in &files {
            let Some(user) = module(file).filter(|user| !matches!(&**user, "lib" | "main")) else {
                continue;
            };
            let named = graph.entry(user.clone()).or_default();
            for path in paths_from_root(&code(file)) {
                let first = path.split("::").next().unwrap_or_default();
                let home = homes.get(first).map_or(first, String::as_str);
                if home != user && modules.contains(home) {
                    named.insert(home.to_owned(), file.clone());
                }
            }
        }
        Self(graph)
    }

    /// The modules that a module needs, directly or not.
    fn below(&self, module: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut left = vec![module];
        while let Some(next) = left.pop() {
            for used in self
                .0
                .get(next)
                .into_iter()
                .flatten()
                .map(|(used, _)| &**used)
            {
                if found.insert(used) {
                    left.push(used);
                }
            }
        }
        found
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.push(path);
        }
    }
}

/// A file without its comments and its unit tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths behind each `crate::`.
fn paths_from_root(code: &str) -> Vec<String> {
    let starts = code.match_indices("crate::");
    let own = starts.filter(|(at, _)| !code[..*at].ends_with('$'));
    own.flat_map(|(at, found)| paths_of(&code[at + found.len()..]))
        .collect()
}

/// The paths of a path or of a group of them: `a::b` and `a::c` of `a::{b, c}`.
pub(crate) fn paths_of(text: &str) -> Vec<String> {
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let text = text.trim_start();
    let end = text.find(|c: char| !is_of_path(c)).unwrap_or(text.len());
    let (path, rest) = text.split_at(end);
    let Some(group) = rest.strip_prefix('{') else {
        return vec![path.to_owned()];
    };
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    let below = parts.flat_map(paths_of);
    below.map(|below| format!("{path}{below}")).collect()
}

#[test]
fn the_runtimes_modules_use_those_below_them() {
    let (_, part) = PAGE
        .split_once("\n## The folders of the runtime\n")
        .expect("its part");
    let part = part.split("\n## ").next().unwrap_or(part);
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let mut rank = BTreeMap::new();
    for (row, line) in rows.enumerate() {
        let cell = line.split('|').nth(1).unwrap_or_default();
        for name in cell.split('`').skip(1).step_by(2) {
            rank.insert(name.trim_end_matches('/').trim_end_matches(".rs"), row);
        }
    }
    let Uses(uses) = Uses::of(&root().join("advisory-runtime/src"));
    let mut wrong = Vec::new();
    for (user, used) in &uses {
        let Some(row) = rank.get(&**user) else {
            wrong.push(format!("{user} is in no row"));
            continue;
        };
        for (used, file) in used {
            if rank.get(&**used).is_none_or(|below| below <= row) {
                wrong.push(format!("{user} uses {used}: {}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const CRATES: [&str; 7] = [
    "advisory-pattern",
    "advisory-derive",
    "advisory-runtime",
    "cargo-advisory",
    "stress",
    "model",
    "benches",
];

/// The runtime's modules have an order of their own.
#[test]
fn no_module_needs_itself() {
    let mut circles = Vec::new();
    for name in CRATES
        .into_iter()
        .filter(|name| *name != "advisory-runtime")
    {
        let uses = Uses::of(&root().join(name).join("src"));
        for module in uses
            .0
            .keys()
            .filter(|module| uses.below(module).contains(&***module))
        {
            circles.push(format!("{name}: {module}"));
        }
    }
    assert!(circles.is_empty(), "in a circle:\n{}", circles.join("\n"));
}

/// The path of a file's module: `lock/way/session.rs` is `lock`, `way`, `session`.
fn module_of(source: &Path, file: &Path) -> Vec<String> {
    let path = file.strip_prefix(source).expect("a file of the crate");
    let parts = path.with_extension("");
    let parts = parts.iter().filter_map(|part| part.to_str());
    let parts = parts.filter(|part| !matches!(*part, "lib" | "main"));
    parts.map(str::to_owned).collect()
}

/// The modules of files that each file's module names by `super::` or `crate::`, also through a
/// module that uses their names. A module may name those that contain it, and they it.
fn files_used(source: &Path) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let mut files = Vec::new();
    collect(source, &mut files);
    let modules: BTreeMap<_, _> = files
        .iter()
        .map(|file| (module_of(source, file), code(file)))
        .collect();
    // A name that a module takes from a module inside it is that module's.
    let mut homes: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (module, code) in &modules {
        let uses = code
            .match_indices("use ")
            .map(|(at, found)| at + found.len());
        for path in uses.flat_map(|at| paths_of(&code[at..])) {
            let mut home = module.clone();
            home.extend(path.split("::").map(str::to_owned));
            if let Some(name) = home.pop()
                && modules.contains_key(&home)
                && home.len() > module.len()
            {
                homes.entry(module.clone()).or_default().insert(name, home);
            }
        }
    }
    let mut used = BTreeMap::new();
    for (module, code) in &modules {
        let parent = &module[..module.len().saturating_sub(1)];
        let mut named = BTreeSet::new();
        for (start, base) in [("crate::", &[][..]), ("super::", parent)] {
            let starts = code.match_indices(start).filter(|(at, _)| {
                !code[..*at]
                    .ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$'))
            });
            for path in starts.flat_map(|(at, _)| paths_of(&code[at + start.len()..])) {
                let mut full = base.to_vec();
                for part in path.split("::").filter(|part| !part.is_empty()) {
                    if part == "super" {
                        full.pop();
                    } else {
                        full.push(part.to_owned());
                    }
                }
                while !full.is_empty() && !modules.contains_key(&full) {
                    let name = full.pop().unwrap_or_default();
                    if let Some(home) = homes.get(&full).and_then(|names| names.get(&name)) {
                        full.clone_from(home);
                    }
                }
                if !module.starts_with(&full) && !full.starts_with(module) {
                    named.insert(full);
                }
            }
        }
        used.insert(module.clone(), named);
    }
    used
}

#[test]
fn no_file_needs_itself() {
    let mut circles = Vec::new();
    for name in CRATES {
        let used = files_used(&root().join(name).join("src"));
        assert!(used.values().any(|used| !used.is_empty()), "{name}");
        for file in used.keys() {
            let (mut found, mut left) = (BTreeSet::new(), vec![file]);
            while let Some(next) = left.pop() {
                left.extend(used[next].iter().filter(|used| found.insert(*used)));
            }
            if found.contains(file) {
                circles.push(format!("{name}: {}", file.join("::")));
            }
        }
    }
    assert!(circles.is_empty(), "in a circle:\n{}", circles.join("\n"));
}

/// What their modules share is in the library of `tests`, by subject, or in a module without tests.
const TESTS: [&str; 5] = [
    "tests/tests/it",
    "tests/tests/ui",
    "cargo-advisory/tests/it",
    "examples/tests/it",
    "model/tests/it",
];

#[test]
fn no_module_of_tests_uses_another() {
    let mut wrong = Vec::new();
    for folder in TESTS {
        let folder = root().join(folder);
        let has_tests = |module: &Vec<String>| {
            let file = folder.join(module.join("/")).with_extension("rs");
            let code = code(&file);
            code.contains("#[test]") || code.contains("#[tokio::test")
        };
        let used = files_used(&folder);
        assert!(used.keys().any(has_tests), "{}", folder.display());
        for (module, named) in &used {
            for other in named.iter().filter(|other| has_tests(other)) {
                let (module, other) = (module.join("::"), other.join("::"));
                wrong.push(format!("{}: {module} uses {other}", folder.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
