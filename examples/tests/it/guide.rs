//! Does the code of the guide's pages do what they say? Each module holds the code of a page as the page shows it, and runs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::items_after_statements,
    clippy::unused_async,
    unused_variables,
    dead_code,
    reason = "code of pages, which leave out what a lock is not about"
)]

mod claims;
mod commits;
mod isolation;
mod leases;
mod nesting;
mod scopes;
mod waiting;
mod when_not_to_lock;

/// What the compiler reads of code: no comments, no imports, and no commas that depend on where a line ends.
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

/// Fails if the module does not have the code of each example of the page, but for the first lines that only a doctest needs.
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

/// The test that each module has.
macro_rules! runs_the_page {
    ($page:literal, $module:literal) => {
        #[test]
        fn the_code_is_the_pages() {
            let page = include_str!(concat!("../../../../advisory-runtime/docs/", $page, ".md"));
            crate::guide::assert_has_the_code_of(page, include_str!($module));
        }
    };
}
use runs_the_page;
