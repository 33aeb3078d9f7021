//! What the attribute says to somebody who uses it wrongly: one mistake a file in `ui/`, and one file with five. What `ui/pass/`
//! holds compiles without a warning. And whether the documents show what is so: their links lead somewhere, the packages are what
//! a registry gets (`packages`), and the dependencies are those that are accounted for (`dependencies`).

mod dependencies;
mod packages;
mod paths;
mod prose;
mod suggestions;

use std::path::{Path, PathBuf};

/// Our words are among the compiler's own, which change with its releases: the files hold those of this one.
const WRITTEN_BY: &str = "rustc 1.95.";

#[test]
fn each_mistake_is_told_what_to_write() {
    let compiler = std::process::Command::new("rustc")
        .arg("--version")
        .output();
    let version = compiler.map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version);
    if version.starts_with(WRITTEN_BY) {
        let cases = trybuild::TestCases::new();
        cases.compile_fail("ui/*.rs");
        cases.pass("ui/pass/*.rs");
        cases.pass(suggestions::write().join("*.rs"));
    } else {
        eprintln!("not compared: the files are written by {WRITTEN_BY}x, and this is {version}");
    }
}

#[test]
fn the_readme_and_the_guide_show_an_error_as_the_compiler_prints_it() {
    let readme = include_str!("../../../README.md");
    let error = include_str!("../../ui/collision_of_two_patterns.stderr");
    assert!(readme.contains(error.trim_end()), "{error}");
    let page = include_str!("../../../advisory-runtime/docs/collisions.md");
    for error in [
        error,
        include_str!("../../ui/collision_of_a_newtype.stderr"),
    ] {
        let (message, _) = error.split_once("\n  --> ").expect("a message and a place");
        assert!(page.contains(message), "{message}");
    }
}

#[test]
fn the_commands_readme_shows_its_table_as_it_is_printed() {
    let readme = include_str!("../../../cargo-advisory/README.md");
    let table = include_str!("../../../cargo-advisory/tests/it/booking-service.txt");
    assert!(readme.contains(table.trim_end()), "{table}");
}

#[test]
fn the_commands_readme_shows_rows_of_the_registry_as_they_are_written() {
    let readme = include_str!("../../../cargo-advisory/README.md");
    let registry = include_str!("../../harbour-lets/LOCKS.md");
    let rows = |text: &'static str| text.lines().filter(|line| line.contains("`lets_"));
    assert_eq!(rows(readme).count(), 3);
    for row in rows(readme) {
        assert!(registry.lines().any(|line| line == row), "{row}");
    }
}

/// Where documents are, from this crate's parent.
const DOCUMENTS: [&str; 4] = [".", "docs", "advisory-runtime/docs", "cargo-advisory"];

/// Files and headings; items of the crate are for rustdoc to find, and their headings for us.
#[test]
fn links_between_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut looked_at = 0;
    let mut lost = Vec::new();
    for folder in DOCUMENTS {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder of documents") {
            let document = entry.expect("an entry of it").path();
            if document.extension().is_none_or(|kind| kind != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&document).expect("a document");
            let targets = text
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'));
            for (target, _) in targets.filter(|(target, _)| !target.contains("://")) {
                looked_at += 1;
                if !leads_somewhere(target, &document, &root) {
                    lost.push(format!("{}: {target}", document.display()));
                }
            }
        }
    }
    assert!(looked_at > 100, "only {looked_at} links were found");
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

fn leads_somewhere(target: &str, document: &Path, root: &Path) -> bool {
    let (target, heading) = match target.split_once('#') {
        Some((target, heading)) => (target, Some(heading)),
        None => (target, None),
    };
    let file = if let Some(page) = target.strip_prefix("crate::guide::") {
        root.join("advisory-runtime/docs")
            .join(page.replace('_', "-") + ".md")
    } else if let Some((_, item)) = target.split_once("crate::") {
        if heading.is_none() {
            return true;
        }
        root.join("advisory-runtime/src")
            .join(item.to_owned() + ".rs")
    } else if target.is_empty() {
        document.to_owned()
    } else {
        document
            .parent()
            .map_or_else(PathBuf::new, |folder| folder.join(target))
    };
    match (std::fs::read_to_string(&file), heading) {
        (Ok(text), Some(heading)) => {
            let lines = text.lines().map(|line| line.trim_start_matches("//! "));
            let mut headings = lines.filter(|line| line.starts_with('#'));
            headings.any(|line| anchor(line) == heading)
        }
        (Ok(_), None) => true,
        (Err(_), heading) => heading.is_none() && file.is_dir(),
    }
}

/// What rustdoc and others call a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    kept.collect()
}

#[test]
fn the_guides_contents_name_every_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../advisory-runtime/docs");
    let contents = std::fs::read_to_string(docs.join("README.md")).expect("the contents");
    for entry in std::fs::read_dir(docs).expect("the pages") {
        let name = entry.expect("an entry").file_name();
        let link = format!("]({})", name.to_string_lossy());
        assert!(
            name == "README.md" || contents.contains(&link),
            "the contents do not name {}",
            name.to_string_lossy()
        );
    }
}

/// Where the guide's page of promises finds a test by the name of its file.
const TESTS: [&str; 4] = [
    "tests/tests",
    "tests/tests/it",
    "advisory-runtime/tests/it",
    "advisory-pattern/tests/it",
];

#[test]
fn the_guide_names_tests_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = include_str!("../../../advisory-runtime/docs/guarantees.md");
    let mut looked_at = 0;
    for shown in page.split("*Shown by*").skip(1) {
        let (shown, _) = shown.split_once("*Remains:*").expect("each has an end");
        for name in shown.split('`').skip(1).step_by(2) {
            let (file, test) = name.split_once("::").unwrap_or((name, ""));
            let files = TESTS.map(|folder| root.join(folder).join(format!("{file}.rs")));
            let mut texts = files
                .iter()
                .filter_map(|file| std::fs::read_to_string(file).ok());
            let is_there = |text: String| text.contains(&format!("fn {test}"));
            assert!(texts.any(is_there), "{name}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 20, "only {looked_at} names were found");
}
