//! Does each path that CONTRIBUTING and the architecture page name exist? The latter also counts from `advisory-runtime/src`.

use crate::packages::root;

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

#[test]
fn the_map_has_twenty_tasks_and_every_one_a_file() {
    let (_, page) = PAGES[0];
    let (_, map) = page.split_once("| I want to change").expect("the map");
    let (map, _) = map.split_once("\n\n").expect("its end");
    let rows: Vec<_> = map.lines().skip(2).collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    for row in rows {
        assert!(paths(row).next().is_some(), "{row}");
    }
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
