//! What the attribute says to somebody who uses it wrongly: one mistake a file in `ui/`, and one file with five.

#[test]
fn each_mistake_is_told_what_to_write() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/*.rs");
}

#[test]
fn the_readme_shows_an_error_as_the_compiler_prints_it() {
    let readme = include_str!("../../README.md");
    let error = include_str!("../ui/collision_of_two_patterns.stderr");
    assert!(readme.contains(error.trim_end()), "{error}");
}

#[test]
fn the_readme_shows_the_commands_table_as_it_is_printed() {
    let readme = include_str!("../../README.md");
    let table = include_str!("../../cargo-advisory/tests/it/booking-service.txt");
    assert!(readme.contains(table.trim_end()), "{table}");
}
