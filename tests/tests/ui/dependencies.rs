//! Each dependency of a published crate is accounted for, and there is no unsafe code.
//! `docs/dependencies.md` says so.

use crate::workspace::{PUBLISHED, cargo, root};
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/dependencies.md");

/// The crates below a package, each with its version; for one target, since the counts of others
/// differ.
fn tree(package: &str, features: &str, more: &[&str]) -> BTreeSet<String> {
    let mut words = vec!["tree", "--locked", "--prefix", "none", "-p", package];
    words.push("--no-default-features");
    words.extend(["--target", "x86_64-unknown-linux-gnu"]);
    match features {
        "none" => {}
        "all" => words.push("--all-features"),
        features => words.extend(["--features", features]),
    }
    words.extend(more);
    let lines = cargo(&words);
    let crates = lines.lines().filter_map(|line| {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        Some(format!("{} {}", words.next()?, words.next()?))
    });
    crates.collect()
}

/// The cells of a table's rows, without the header.
fn rows(part: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

fn in_backticks(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[test]
fn each_direct_dependency_has_its_reason() {
    for package in PUBLISHED {
        let heading = format!("\n## `{package}`\n");
        let (_, part) = PAGE.split_once(&heading).expect("a part for each crate");
        let part = part.split("\n## ").next().unwrap_or(part);
        let told: BTreeSet<String> = rows(part)
            .flat_map(|row| in_backticks(row[0]).collect::<Vec<_>>())
            .collect();
        let found = tree(package, "all", &["-e", "normal,build", "--depth", "1"]);
        let names = found.iter().filter_map(|found| found.split(' ').next());
        let found: BTreeSet<String> = names
            .filter(|name| *name != package)
            .map(str::to_owned)
            .collect();
        assert_eq!(told, found, "{package}");
    }
}

#[test]
fn the_trees_are_as_large_as_the_page_says() {
    let (counts, _) = PAGE.split_once("\n## ").expect("the counts come first");
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for row in rows(counts) {
        let [package, features, told] = row[..] else {
            panic!("three cells: {row:?}")
        };
        let (package, features) = (package.trim_matches('`'), features.trim_matches('`'));
        let found = tree(package, features, &["-e", "normal,build"]).len();
        if told != found.to_string() {
            wrong.push(format!(
                "{package}, features {features}: {found}, not {told}"
            ));
        }
        looked_at += 1;
    }
    assert_eq!(looked_at, 10);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Outside the subtrees of our own two crates, nothing else is missing.
#[test]
fn beside_diesel_async_only_our_own_crates_are_new() {
    let edges = ["-e", "normal,build"];
    let all = tree("advisory-runtime", "diesel-async", &edges);
    let pruned = ["--prune", "advisory-derive", "--prune", "advisory-pattern"];
    let edges = [&edges[..], &pruned].concat();
    let rest = tree("advisory-runtime", "diesel-async", &edges);
    let new: Vec<_> = all
        .difference(&rest)
        .filter(|found| !found.starts_with("advisory-"))
        .collect();
    assert!(new.is_empty(), "{new:?}");
}

/// The lowest version that the workspace's manifest allows.
fn lowest(dependency: &str) -> String {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let line = manifest.lines().find_map(|line| {
        let version = line
            .strip_prefix(dependency)?
            .strip_prefix(" = { version = \"")?;
        version.split(['"', ',']).next()
    });
    let version = line.expect("a version").trim_start_matches(">=");
    let zeros = 2 - version.matches('.').count();
    format!("{version}{}", ".0".repeat(zeros))
}

/// `scripts/lowest-versions` runs the tests of behaviour with this lock file.
#[test]
fn the_lowest_versions_are_those_that_are_tested() {
    let folder = root().join("tests/lowest");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).expect(file);
    let (lock, manifest) = (read("Cargo.lock"), read("Cargo.toml"));
    // A new dependency has to be added there.
    let runtime = manifest
        .lines()
        .find(|line| line.starts_with("advisory-runtime = "));
    let (_, features) = runtime
        .and_then(|line| line.split_once('['))
        .expect("features");
    let features = features.replace(['"', ' ', ']', '}'], "") + ",diesel-async";
    for (package, features) in [
        ("advisory-pattern", "none"),
        ("advisory-derive", "none"),
        ("advisory-runtime", &*features),
    ] {
        let (_, entry) = lock
            .split_once(&format!("name = \"{package}\"\n"))
            .expect(package);
        let entry = entry.split("[[package]]").next().unwrap_or_default();
        for found in tree(package, features, &["-e", "normal,build", "--depth", "1"]) {
            let name = found.split(' ').next().unwrap_or_default();
            // A version follows where there are several.
            let is_listed = ['"', ' '].map(|end| entry.contains(&format!("\n \"{name}{end}")));
            assert!(
                name == package || is_listed.contains(&true),
                "tests/lowest/Cargo.lock has no {name} of {package}"
            );
        }
    }
    for name in [
        "bb8",
        "deadpool",
        "diesel",
        "diesel-async",
        "tokio",
        "tokio-postgres",
    ] {
        let package = format!("name = \"{name}\"\nversion = ");
        let versions: Vec<_> = lock
            .split(&package)
            .skip(1)
            .map(|rest| rest.split('"').nth(1))
            .collect();
        assert_eq!(versions, [Some(lowest(name).as_str())], "{name}");
    }
}

/// Words that no comment, text or lint's name contains.
fn unsafe_lines(text: &str) -> Vec<String> {
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(line));
    let lines = code.filter(|line| {
        line.replace("\"unsafe\"", "")
            .replace("unsafe_code", "")
            .contains("unsafe")
    });
    lines.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn unsafe_is_only_the_records_section() {
    for package in PUBLISHED {
        let mut folders = vec![root().join(package).join("src")];
        let mut found = Vec::new();
        let mut forbids = false;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(path).expect("a source");
                forbids |= text.contains("\n#![forbid(unsafe_code)]\n");
                found.extend(unsafe_lines(&text));
            }
        }
        assert!(forbids, "{package}");
        found.retain(|line| {
            package != "advisory-runtime" || !line.contains("unsafe(link_section = ")
        });
        assert!(found.is_empty(), "{package}: {found:?}");
    }
}
