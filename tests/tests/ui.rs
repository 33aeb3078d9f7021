//! What the attribute says to somebody who uses it wrongly: one mistake a file in `ui/`, and one file with five. What `ui/pass/`
//! holds compiles without a warning.

/// Our words stand between the compiler's own, which change with its releases: the files hold those of this one.
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
    } else {
        eprintln!("not compared: the files are written by {WRITTEN_BY}x, and this is {version}");
    }
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
