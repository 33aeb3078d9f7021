//! Messages for incorrect use: a file in `ui/` for each argument, or kind of mistake. The programs
//! in `ui/pass/` compile without a warning, and so does every argument with every kind of parameter
//! (`combinations`). Tests of the documents: their links are defined (`links`) and lead somewhere
//! (`targets`), the packages are what a registry gets (`packages`), and the dependencies are
//! accounted for (`dependencies`).

mod combinations;
mod compiles;
mod dependencies;
mod layers;
mod links;
mod packages;
mod pages;
mod paths;
mod release;
mod suggestions;
mod targets;
mod workspace;

use std::path::{Path, PathBuf};

/// Our messages appear among the compiler's own, which change between its releases: the files are
/// written by this one.
const WRITTEN_BY: &str = "rustc 1.95.";

#[test]
fn each_mistake_has_its_message_and_correct_code_compiles() {
    let compiler = std::process::Command::new("rustc").arg("-vV").output();
    let version = compiler.map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version);
    if version.starts_with(WRITTEN_BY) {
        compiles::share_with_trybuild();
        let cases = trybuild::TestCases::new();
        cases.compile_fail("ui/*.rs");
        drop(cases);
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.expect("the compiler's own platform");
        let pass = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/pass");
        let folders = [pass, suggestions::write()];
        let programs: Vec<PathBuf> = folders
            .iter()
            .flat_map(|folder| compiles::programs(folder))
            .collect();
        compiles::without_a_warning(&programs, host);
        combinations::check(host);
    } else {
        eprintln!("not compared: the files are written by {WRITTEN_BY}x, and this is {version}");
    }
}

#[test]
fn the_readme_and_the_guide_show_the_compilers_error() {
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

/// `ui/pass/readme_table.rs` compiles it.
#[test]
fn each_row_of_the_readmes_table_is_compiled() {
    let (_, table) = include_str!("../../../README.md")
        .split_once("\n## I need")
        .expect("a table");
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(2);
    let program = include_str!("../../ui/pass/readme_table.rs");
    let mut looked_at = 0;
    for row in rows {
        let row = row.replace("\\|", "\u{0}");
        let cell = row.split('|').nth(2).expect("what to write");
        let code = cell.split('`').skip(1).step_by(2);
        for part in code.flat_map(|code| code.split('…')) {
            let part = part.trim_end_matches(')').replace('\u{0}', "|");
            assert!(program.contains(part.trim()), "{part}");
            looked_at += 1;
        }
    }
    assert!(looked_at >= 15, "only {looked_at} pieces were found");
}

#[test]
fn the_commands_readme_shows_its_table_as_it_is_printed() {
    let readme = include_str!("../../../cargo-advisory/README.md");
    let table = include_str!("../../../cargo-advisory/tests/it/booking-service.txt");
    assert!(readme.contains(table.trim_end()), "{table}");
}

#[test]
fn the_page_on_the_registry_shows_rows_as_they_are_written() {
    let page = include_str!("../../../cargo-advisory/docs/registry.md");
    let registry = include_str!("../../harbour-lets/LOCKS.md");
    let rows = |text: &'static str| text.lines().filter(|line| line.contains("`lets_"));
    assert_eq!(rows(page).count(), 3);
    for row in rows(page) {
        assert!(registry.lines().any(|line| line == row), "{row}");
    }
}

/// The guide's page of promises names tests by the names of their files.
const TESTS: [&str; 5] = [
    "tests/tests",
    "tests/tests/it",
    "tests/tests/it/both",
    "advisory-runtime/tests/it",
    "advisory-pattern/tests/it",
];

#[test]
fn the_guide_names_tests_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = include_str!("../../../advisory-runtime/docs/guarantees.md");
    let mut looked_at = 0;
    for shown in page.split("*Test:*").skip(1) {
        let (shown, _) = shown.split_once("*Still open:*").expect("each has an end");
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
