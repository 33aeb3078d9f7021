//! Runs of the compiler as tests of a macro: each has to print what it prints without a mutant.
//!
//! A test program that compiles other programs does that with cargo, which takes longer than the compiler itself. So it runs once with
//! this program as the wrapper of rustc, which notes each command.

use crate::program::Program;
use crate::test::{SCRATCH, Test, libraries};
use crate::{Failure, print, stdout_of};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, process};

/// The folder for the commands: if it is set, this program is the wrapper.
pub(crate) const COMMANDS: &str = "MUTANTS_COMMANDS";

/// Notes the command of rustc, and runs it.
pub(crate) fn wrap(commands: &Path) -> Result<(), Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    // Clippy's driver is a wrapper too.
    let is_clippy = words[0].ends_with("clippy-driver");
    let compiles = &words[usize::from(is_clippy)..];
    let is_rustc = compiles.first().is_some_and(|word| word.ends_with("rustc"));
    let is_noted = is_rustc
        && env::var_os("CARGO_PRIMARY_PACKAGE").is_some()
        && words.iter().any(|word| word == "--out-dir");
    if is_noted {
        let variables: Vec<_> = env::vars()
            .filter(|(name, _)| name.starts_with("CARGO"))
            .collect();
        let noted =
            json!({ "words": compiles, "folder": env::current_dir()?, "variables": variables });
        fs::write(
            commands.join(format!("{}.json", process::id())),
            noted.to_string(),
        )?;
    }
    Err(Command::new(&words[0]).args(&words[1..]).exec().into())
}

/// The commands of a test of a program.
pub(crate) fn tests(
    program: &Program,
    name: &str,
    commands: &Path,
    target: &Path,
) -> Result<Vec<Test>, Failure> {
    if !commands.exists() {
        fs::create_dir_all(commands)?;
        print(&format!("notes what {} compiles", program.path.display()));
        let mut command = Command::new(&program.path);
        command.arg(name).env("LD_LIBRARY_PATH", libraries()?);
        command
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder);
        command
            .env("RUSTC_WRAPPER", env::current_exe()?)
            .env(COMMANDS, commands)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_INCREMENTAL", "0");
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
    }
    let root = stdout_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let compiler = format!("{}/bin/rustc", root.trim());
    let mut tests = Vec::new();
    for entry in fs::read_dir(commands)? {
        let noted: Value = serde_json::from_slice(&fs::read(entry?.path())?)?;
        let mut words: Vec<String> = serde_json::from_value(noted["words"].clone())?;
        words[0].clone_from(&compiler);
        let out = words
            .iter()
            .position(|word| word == "--out-dir")
            .unwrap_or_default();
        SCRATCH.clone_into(&mut words[out + 1]);
        let source = words
            .iter()
            .find(|word| word.ends_with(".rs"))
            .cloned()
            .unwrap_or_default();
        tests.push(Test {
            name: format!("rustc {source}"),
            words,
            folder: serde_json::from_value(noted["folder"].clone())?,
            variables: serde_json::from_value(noted["variables"].clone())?,
            printed: Some(String::new()),
        });
    }
    Ok(tests)
}
