//! The `cargo advisory` command: the locks of a program, their collisions, and their holders.
//!
//! `command` has the subcommands, each of which describes its own arguments. `cli` has the
//! arguments that they share. `selection` reads cargo's flags and builds, and `artifact` reads the
//! lock sites of files into an `inventory`. `table`, `json`, `markdown` and `report` write them.
//! `check` looks for `finding`s, and `source_root` locates their lines. `graph` draws the order that
//! tests have recorded. `locks`, `lease`, `claim` and `doctor` look at a `database`, and `log` reads
//! the log of its server. `migration` prints SQL, such as the trigger of a `guard`.
#![forbid(unsafe_code)]

mod artifact;
mod build;
mod check;
mod claim;
mod cli;
mod columns;
mod command;
mod database;
mod display_width;
mod doctor;
mod dump;
mod duration;
mod failure;
mod finding;
mod graph;
mod guard;
mod inventory;
mod job_table;
mod json;
mod key;
mod key_values;
mod lease;
mod locks;
mod log;
mod markdown;
mod migration;
mod report;
mod screen;
mod selection;
mod source_root;
mod table;
mod text;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use screen::ERROR;

fn main() -> ExitCode {
    match command::run(&words(env::args_os())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            let why = text::printable(&failure.to_string());
            screen::note(&format!("{ERROR}error{ERROR:#}: {why}\n"));
            ExitCode::from(failure.code())
        }
    }
}

/// Adds the word that cargo passes, because a user can call `cargo-advisory dump` without it.
fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.collect();
    if words.get(1).is_none_or(|word| word != "advisory") {
        words.insert(words.len().min(1), "advisory".into());
    }
    words
}
