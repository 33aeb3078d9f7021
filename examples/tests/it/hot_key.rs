//! The program about the hot key runs, and shows a line for each case.

#[test]
fn the_table_has_a_line_for_each_case() {
    let printed = crate::printed_by("hot_key", &["100"]);
    assert!(printed.starts_with("64 clients, 100 calls on one key, 8 connections\n"));
    for name in ["nobody on the hot key", "without a queue", "queue = 64"] {
        crate::line(&printed, name);
    }
}
