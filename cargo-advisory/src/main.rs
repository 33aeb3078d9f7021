//! The `cargo advisory` command: what does a program lock, can its locks collide, and who holds them now?
//!
//! The pipeline: `cli` reads the words and `selection` cargo's flags; `cargo` builds and names the artifacts; `artifact` reads one;
//! `inventory` puts them together; `table`, `json` and `markdown` write them; `collisions`, `release` and `drift` look for `finding`s.
//! `graph` draws what tests have recorded, and `locks` looks at a database.
#![forbid(unsafe_code)]

mod artifact;
mod build;
mod cargo;
mod check;
mod cli;
mod collisions;
mod declared;
mod drift;
mod dump;
mod failure;
mod finding;
mod graph;
mod grid;
mod inventory;
mod json;
mod key;
mod locks;
mod markdown;
mod odds;
mod release;
mod screen;
mod selection;
mod table;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::ArgMatches;
use clap_complete::Shell;

use failure::Failure;
use screen::ERROR;

/// The program's own name; cargo makes two words of it.
const NAME: &str = "cargo-advisory";

fn main() -> ExitCode {
    let matches = cli::command().get_matches_from(words(env::args_os()));
    let Some((_, advisory)) = matches.subcommand() else {
        return ExitCode::from(2);
    };
    match answer(advisory) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            screen::note(&format!("{ERROR}error{ERROR:#}: {failure}\n"));
            ExitCode::from(failure.code())
        }
    }
}

/// Cargo calls `cargo-advisory advisory dump`; called by hand it is `cargo-advisory dump`.
fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.collect();
    if words.get(1).is_none_or(|word| word != "advisory") {
        words.insert(words.len().min(1), "advisory".into());
    }
    words
}

/// Tells whether nothing was found.
fn answer(matches: &ArgMatches) -> Result<bool, Failure> {
    match matches.subcommand() {
        Some(("dump", dump)) => dump::run(dump).map(|()| true),
        Some(("check", check)) => check::run(check),
        Some(("build", build)) => build::run(build),
        Some(("graph", graph)) => graph::run(graph),
        Some(("key", key)) => {
            let text = key.get_one::<String>("text").map_or("", String::as_str);
            let to = cli::path(key, "output").map(AsRef::as_ref);
            key::run(text, cli::format_of(key), to).map(|()| true)
        }
        Some(("locks", locks)) => locks::run(locks),
        Some(("completions", completions)) => {
            if let Some(shell) = completions.get_one::<Shell>("shell") {
                let mut script = Vec::new();
                let mut command = cli::words(NAME);
                clap_complete::generate(*shell, &mut command, NAME, &mut script);
                screen::write(None, &String::from_utf8_lossy(&script))?;
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}
