//! The paths named in CONTRIBUTING and on the architecture page: each exists. Those on the latter
//! may also be relative to `advisory-runtime/src`.

use crate::workspace::root;

const PAGES: [(&str, &str); 2] = [
    ("CONTRIBUTING.md", include_str!("../../../CONTRIBUTING.md")),
    (
        "docs/architecture.md",
        include_str!("../../../docs/architecture.md"),
    ),
];

/// The words in backticks that have the form of a path in this repository.
fn paths(page: &str) -> impl Iterator<Item = &str> {
    let prose = page.split("\n```").step_by(2);
    let quoted = prose.flat_map(|part| part.split('`').skip(1).step_by(2));
    let is_path = |text: &&str| {
        let is_file = text.contains(['/', '.']) && !text.contains([' ', '(', ':', '<', '#']);
        is_file && !text.starts_with('.') && !text.ends_with('.')
    };
    quoted.filter(is_path)
}

#[test]
fn each_path_of_the_map_exists() {
    let root = root();
    for (name, page) in PAGES {
        let folders = [root.clone(), root.join("advisory-runtime/src")];
        let exists = |path: &str| folders.iter().any(|folder| folder.join(path).exists());
        let lost: Vec<_> = paths(page).filter(|path| !exists(path)).collect();
        assert!(lost.is_empty(), "{name} names {lost:?}");
    }
}

/// A reader sees the end of it.
#[test]
fn the_readme_has_at_most_150_lines() {
    let lines = include_str!("../../../README.md").lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn contributing_has_at_most_a_thousand_words_and_wraps() {
    let (_, page) = PAGES[0];
    let words = page.split_whitespace().filter(|word| *word != "|").count();
    assert!(words <= 1_000, "{words} words");
    for (name, page) in PAGES {
        let prose = page.lines().filter(|line| !line.starts_with('|'));
        let long: Vec<_> = prose.filter(|line| line.chars().count() > 100).collect();
        assert!(long.is_empty(), "{name} does not wrap at 100: {long:?}");
    }
}
