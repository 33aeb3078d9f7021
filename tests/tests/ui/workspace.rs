//! This workspace: its folder, its published packages, and what cargo says of it.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) const PUBLISHED: [&str; 4] = [
    "advisory-pattern",
    "advisory-derive",
    "advisory-runtime",
    "cargo-advisory",
];

/// The output of cargo in this workspace.
pub(crate) fn cargo(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(words)
        .current_dir(root())
        .output()
        .expect("cargo");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {words:?}: {said}");
    String::from_utf8(output.stdout).expect("names")
}
