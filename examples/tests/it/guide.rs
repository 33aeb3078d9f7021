//! The code of the guide's pages does what they say. Each module contains the code of a page,
//! unchanged, and runs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::large_futures,
    clippy::unreadable_literal,
    clippy::items_after_statements,
    clippy::unused_async,
    unused_variables,
    dead_code,
    reason = "code of pages, which leave out what a lock is not about"
)]

mod cancellation;
mod choosing;
mod claims;
mod commits;
mod connections;
mod errors;
mod expansion;
mod guarantees;
mod guarded_tables;
mod holding;
mod isolation;
mod leadership;
mod leases;
mod migrations;
mod moving_queues;
mod nesting;
mod owned_locks;
mod periodic_jobs;
mod scopes;
mod several_servers;
mod testing;
mod waiting;
mod watching;
mod well_known_keys;
mod when_not_to_lock;

/// The code as the compiler reads it: no comments, no imports, and no trailing commas.
fn tokens(code: &str) -> String {
    let lines = code.lines().map(|line| match line.split_once("//") {
        Some((before, _)) if !before.contains('"') => before,
        _ => line,
    });
    let mut kept = String::new();
    let mut is_import = false;
    for line in lines {
        let line = line.trim();
        is_import |= line.starts_with("use ");
        if !is_import {
            kept += line;
            kept.push('\n');
        }
        is_import &= !line.ends_with(';');
    }
    let kept: String = kept.split_whitespace().collect();
    let ends = [",)", ",}", ",]", ",>"];
    ends.iter()
        .fold(kept, |kept, end| kept.replace(end, &end[1..]))
}

/// Fails if the module does not contain the code of each example of the page, except for the first
/// lines that only a doctest needs.
fn assert_has_the_code_of(page: &str, module: &str) {
    let module = tokens(module);
    let mut examples = 0;
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').expect("a block has lines");
        if !["", "no_run"].contains(&language) {
            continue;
        }
        let shown = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("# "));
        let shown = shown.collect::<Vec<_>>().join("\n");
        assert!(module.contains(&tokens(&shown)), "not run:\n{shown}");
        examples += 1;
    }
    assert!(examples > 0, "the page has no example");
}

/// The page's only block of SQL that contains these words.
fn sql<'p>(page: &'p str, words: &str) -> &'p str {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let mut blocks = blocks.filter_map(|block| block.strip_prefix("sql\n"));
    let mut found = blocks.by_ref().filter(|block| block.contains(words));
    match (found.next(), found.next()) {
        (Some(block), None) => block,
        found => panic!("one block has `{words}`, and not {found:?}"),
    }
}

/// The test of each page, and the files with its code.
macro_rules! runs_the_page {
    ($page:literal, $($module:literal),+) => {
        #[test]
        fn the_code_is_the_pages() {
            let page = include_str!(concat!("../../../../advisory-runtime/docs/", $page, ".md"));
            let modules = concat!($(include_str!($module)),+);
            crate::guide::assert_has_the_code_of(page, modules);
        }
    };
}
use runs_the_page;

/// A doctest compiles a block that is marked `no_run`, and runs the others.
#[test]
fn each_page_with_code_that_its_doctest_does_not_run_is_run_here() {
    use std::fs;
    use std::path::Path;

    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut modules = String::new();
    for entry in fs::read_dir(here.join("tests/it/guide")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            modules += &fs::read_to_string(path).unwrap();
        }
    }
    let mut pages = 0;
    for entry in fs::read_dir(here.join("../advisory-runtime/docs")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if fs::read_to_string(&path).unwrap().contains("```no_run") {
            let module = format!("runs_the_page!(\"{name}\"");
            let wrapped = format!("runs_the_page!(\n    \"{name}\"");
            assert!(
                modules.contains(&module) || modules.contains(&wrapped),
                "{name}.md is not run"
            );
            pages += 1;
        }
    }
    assert!(pages > 15, "only {pages} pages were found");
}
