//! What the attribute says to somebody who uses it wrongly: one mistake a file in `ui/`, and one file with five.

#[test]
fn each_mistake_is_told_what_to_write() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/*.rs");
}
