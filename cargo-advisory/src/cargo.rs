//! The files that `cargo build` produces.
//!
//! Cargo itself lists them, including those that are up to date, so nothing is guessed from
//! directories.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anstream::ColorChoice;
use serde_json::Value;

use crate::failure::{Failure, Result, bail};

/// Builds, with cargo's messages on the standard error. Returns the artifacts that can contain lock
/// sites.
pub(crate) fn build(flags: &[String]) -> Result<Vec<PathBuf>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let color = match ColorChoice::global() {
        ColorChoice::Always | ColorChoice::AlwaysAnsi => "always",
        ColorChoice::Never => "never",
        ColorChoice::Auto => "auto",
    };
    let output = Command::new(cargo)
        .args(["build", "--message-format=json-render-diagnostics"])
        .args(["--color", color])
        .args(flags)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::Input(format!("cannot run cargo: {error}")))?;
    if !output.status.success() {
        let code = output.status.code().map(u8::try_from);
        return Err(Failure::Cargo(code.and_then(Result::ok).unwrap_or(101)));
    }
    let messages = output.stdout.split(|byte| *byte == b'\n');
    let messages = messages.filter_map(|line| serde_json::from_slice(line).ok());
    let mut files: Vec<PathBuf> = messages
        .flat_map(|message: Value| artifacts(&message))
        .collect();
    files.sort();
    files.dedup();
    if files.is_empty() {
        bail!("`cargo build` makes no program or library for this selection");
    }
    Ok(files)
}

fn artifacts(message: &Value) -> Vec<PathBuf> {
    let mut kinds = message["target"]["kind"].as_array().into_iter().flatten();
    // These run during the build, and are not part of the program.
    let is_tool = kinds.any(|kind| kind == "proc-macro" || kind == "custom-build");
    if message["reason"] != "compiler-artifact" || is_tool {
        return Vec::new();
    }
    let files = message["filenames"].as_array().into_iter().flatten();
    let files = files.chain(Some(&message["executable"]));
    // Metadata, debug information and import libraries have no other lock sites than their
    // artifact.
    let others = ["rmeta", "d", "pdb", "dwp", "dSYM", "exp"].map(OsStr::new);
    let files = files.filter_map(Value::as_str).map(PathBuf::from);
    files
        .filter(|file| file.extension().is_none_or(|it| !others.contains(&it)))
        .collect()
}
