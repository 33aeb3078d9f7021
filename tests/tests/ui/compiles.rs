//! Correct programs compile without a warning.
//!
//! trybuild checks that too, but then builds every dependency and, one after the other, the
//! incorrect programs. So these are only checked, in a similar project with the same dependencies.

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

/// Lets trybuild use the macros and build scripts of this build, which are half of what it would
/// compile.
pub(crate) fn share_with_trybuild() {
    #[cfg(unix)]
    {
        let folder = target().join("trybuild");
        for needed in [&folder, &target().with_file_name("debug")] {
            fs::create_dir_all(needed).expect("the target folder is ours");
        }
        // Those of an earlier run may be there already.
        let linked = std::os::unix::fs::symlink("../../debug", folder.join("debug"));
        drop(linked);
    }
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

/// Checks the programs, after trybuild.
pub(crate) fn without_a_warning(programs: &[PathBuf], host: &str) {
    let with_programs = |manifest: &str| {
        let mut manifest = manifest.to_owned();
        for program in programs {
            let name = program.file_stem().expect("a file").display();
            let path = program.display();
            write!(manifest, "\n[[bin]]\nname = \"{name}\"\npath = '{path}'\n").expect("a text");
        }
        manifest
    };
    cargo("check", &project("compiles", with_programs), host);
}

/// A project with the dependencies of trybuild's, which are compiled.
pub(crate) fn project(name: &str, manifest: impl Fn(&str) -> String) -> PathBuf {
    let read = |file| {
        let file = target().join("trybuild/advisory-tests").join(file);
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let trybuilds = read("Cargo.toml");
    let tables = trybuilds
        .split("\n\n")
        .filter(|table| !table.starts_with("[[bin]]"));
    let manifest = manifest(&tables.collect::<Vec<_>>().join("\n\n"));
    let project = target().join(name);
    fs::create_dir_all(&project).expect("the target folder is ours");
    for (file, text) in [("Cargo.toml", manifest), ("Cargo.lock", read("Cargo.lock"))] {
        fs::write(project.join(file), text).expect("the target folder is ours");
    }
    project
}

/// Runs `cargo check` or `cargo clippy`, which must have nothing to say.
pub(crate) fn cargo(command: &str, project: &Path, host: &str) {
    // With flags other than trybuild's, the dependencies would be compiled again.
    let flags = "[\"--cfg\", \"trybuild\", \"--verbose\", \"-A\", \"dead_code\"]";
    let output = Command::new(env!("CARGO"))
        .args([
            command,
            "--quiet",
            "--offline",
            "--keep-going",
            "--target",
            host,
        ])
        .arg(format!("--config=build.rustflags={flags}"))
        .arg(format!("--config=target.{host}.rustflags={flags}"))
        .current_dir(project)
        .env("CARGO_TARGET_DIR", target().join("trybuild"))
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
