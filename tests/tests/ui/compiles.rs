//! Correct programs compile without a warning.
//!
//! trybuild checks that too, but then builds every dependency and, one after the other, the incorrect programs. So these are only
//! checked, in a similar project with the same dependencies.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder for programs that tests compile, in the target folder of this test.
pub(crate) fn target() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.ancestors().nth(3).expect("the target folder");
    folder.join("tests")
}

/// The programs in a folder.
pub(crate) fn programs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of programs");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "rs"));
    files
}

/// After trybuild, whose compiled dependencies are reused.
pub(crate) fn without_a_warning(programs: &[PathBuf], host: &str) {
    let trybuild = target().join("trybuild");
    let read = |file| fs::read_to_string(trybuild.join("advisory-tests").join(file)).expect(file);
    let manifest = read("Cargo.toml");
    let tables = manifest
        .split("\n\n")
        .filter(|table| !table.starts_with("[[bin]]"));
    let mut manifest = tables.collect::<Vec<_>>().join("\n\n");
    for program in programs {
        let name = program.file_stem().expect("a file").display();
        let path = program.display();
        write!(manifest, "\n[[bin]]\nname = \"{name}\"\npath = '{path}'\n").expect("a text");
    }
    let project = target().join("compiles");
    fs::create_dir_all(&project).expect("the target folder is ours");
    for (file, text) in [("Cargo.toml", manifest), ("Cargo.lock", read("Cargo.lock"))] {
        fs::write(project.join(file), text).expect("the target folder is ours");
    }
    // With flags other than trybuild's, the dependencies would be compiled again.
    let flags = "[\"--cfg\", \"trybuild\", \"--verbose\", \"-A\", \"dead_code\"]";
    let output = Command::new(env!("CARGO"))
        .args([
            "check",
            "--quiet",
            "--offline",
            "--bins",
            "--keep-going",
            "--target",
            host,
        ])
        .arg(format!("--config=build.rustflags={flags}"))
        .arg(format!("--config=target.{host}.rustflags={flags}"))
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", &trybuild)
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
