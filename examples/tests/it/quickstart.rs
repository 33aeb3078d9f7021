//! The program on the README's first screen compiles, and lets one of two callers book.

use advisory_tests::Database;

const README: &str = include_str!("../../../README.md");

#[test]
fn the_readme_shows_this_program_whole() {
    let program = README
        .split("```rust\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let source = include_str!("../../quickstart.rs");
    let begin = source.find("use ").expect("the program itself");
    assert_eq!(program, Some(&source[begin..]));
}

#[test]
fn one_of_two_callers_books() {
    let runtime = &crate::SERVER.1;
    let db = runtime.block_on(Database::create());
    let printed = crate::printed_by("quickstart", &[db.url()]);
    let either = [
        "Ann booked: true, Bob booked: false\n",
        "Ann booked: false, Bob booked: true\n",
    ];
    assert!(either.contains(&printed.as_str()), "{printed}");
}
