//! The code of the guide's pages does what they say. Each module includes the code of a page, which
//! `build.rs` copies, and runs it.

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

use std::fs;
use std::path::Path;

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

/// A page's Nth block of code.
macro_rules! page {
    ($page:literal, $number:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $page, "-", $number, ".rs"));
    };
}
use page;

/// A doctest compiles a block that is marked `no_run`, and runs the others.
#[test]
fn each_block_that_its_doctest_does_not_run_is_run_here() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("tests/it/guide");
    let modules = read_all(&folder);
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let declared = format!("\nmod {name};");
        assert!(include_str!("guide.rs").contains(&declared), "{declared}");
    }
    let mut blocks = 0;
    for entry in fs::read_dir(here.join("../advisory-runtime/docs")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let page = fs::read_to_string(&path).unwrap();
        let languages = page.split("\n```").skip(1).step_by(2);
        let languages = languages.map(|block| block.lines().next().unwrap_or_default());
        let rust = languages.filter(|language| ["", "no_run"].contains(language));
        for (number, language) in (1..).zip(rust) {
            let included = format!("page!(\"{name}\", {number})");
            if language == "no_run" {
                assert!(modules.contains(&included), "{included}");
                blocks += 1;
            }
        }
    }
    assert!(blocks > 40, "only {blocks} blocks were found");
}

fn read_all(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap();
    let texts = entries.map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path)
        } else {
            fs::read_to_string(path).unwrap()
        }
    });
    texts.collect()
}
