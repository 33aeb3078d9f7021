//! Does the program about the hot key run, and show a line for each case?

use std::env;
use std::process::Command;

#[test]
fn the_table_has_a_line_for_each_case() {
    let test = env::current_exe().expect("this program");
    let build = test.ancestors().nth(2).expect("the build's folder");
    let output = Command::new(build.join("examples/hot_key"))
        .output()
        .expect("`cargo test` builds the examples of its package");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let table = String::from_utf8_lossy(&output.stdout);
    for name in ["nobody on the hot key", "without a queue", "queue = 64"] {
        assert_eq!(table.matches(&format!("\n{name} ")).count(), 1, "{table}");
    }
}
