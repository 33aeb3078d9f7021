//! The command line. Each subcommand is in the file that runs it, but those about the command line
//! itself are here.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, ColorChoice, Command, Parser, ValueHint};
use clap_complete::Shell;

use crate::cli::{self, CODES, NAME, Output};
use crate::failure::{Failure, Result};
use crate::{build, check, claim, doctor, dump, graph, key, lease, locks, log, migration, report};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// The whole command line, as cargo calls it.
#[derive(Parser)]
#[command(name = "cargo", bin_name = "cargo", styles = STYLES)]
enum Cargo {
    Advisory(Advisory),
}

/// Lists and checks the advisory locks of a program, and shows who holds them
#[derive(Args)]
#[command(version, arg_required_else_help = true, after_help = CODES)]
struct Advisory {
    #[command(subcommand)]
    subcommand: Subcommand,

    #[arg(
        long,
        value_name = "WHEN",
        global = true,
        help = "Colours: `auto`, `always` or `never` [default: `CARGO_TERM_COLOR`, else for a terminal]",
        hide_possible_values = true
    )]
    color: Option<ColorChoice>,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    Dump(dump::Arguments),
    Check(check::Arguments),
    Build(build::Arguments),
    Key(key::Arguments),
    Locks(locks::Arguments),
    Lease(lease::Arguments),
    Claim(Box<claim::Arguments>),
    Log(log::Arguments),
    Doctor(doctor::Arguments),
    Graph(graph::Arguments),
    Report(report::Arguments),
    Migration(migration::Arguments),
    Completions(Completions),
    Manual(Manual),
}

/// Runs the subcommand that the words name. Returns `false` if it found something. Wrong use ends
/// the process.
pub(crate) fn run(words: &[OsString]) -> Result<bool> {
    cli::choose_colors(words);
    let Cargo::Advisory(advisory) = Cargo::parse_from(words);
    match &advisory.subcommand {
        Subcommand::Dump(dump) => dump.run(),
        Subcommand::Check(check) => check.run(),
        Subcommand::Build(build) => build.run(),
        Subcommand::Key(key) => key.run(),
        Subcommand::Locks(locks) => locks.run(),
        Subcommand::Lease(lease) => lease.run(),
        Subcommand::Claim(claim) => claim.run(),
        Subcommand::Log(log) => log.run(),
        Subcommand::Doctor(doctor) => doctor.run(),
        Subcommand::Graph(graph) => graph.run(),
        Subcommand::Report(report) => report.run(),
        Subcommand::Migration(migration) => migration.run(),
        Subcommand::Completions(completions) => completions.run(),
        Subcommand::Manual(manual) => manual.run(),
    }
}

/// The command line after `cargo`. Shells complete it under the name `cargo-advisory`.
fn advisory() -> Command {
    Advisory::augment_args(Command::new(NAME))
}

/// Prints a completion script for a shell
///
/// The script completes `cargo-advisory`. In zsh, saved as `_cargo-advisory` on the `fpath`, it
/// also completes `cargo advisory`.
#[derive(Args)]
struct Completions {
    shell: Shell,
    #[command(flatten)]
    output: Output,
}

impl Completions {
    fn run(&self) -> Result<bool> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut advisory(), NAME, &mut script);
        self.output.write(&String::from_utf8_lossy(&script))?;
        Ok(true)
    }
}

/// Writes manual pages for `man`
///
/// There is one for the command and one for each subcommand, in a folder that it creates. In a
/// folder `man1` on the `MANPATH`, `man cargo-advisory-locks` shows them.
#[derive(Args)]
struct Manual {
    /// Where the pages are written
    #[arg(value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

impl Manual {
    fn run(&self) -> Result<bool> {
        // A user writes two words; the files are named with hyphens.
        let command = advisory().bin_name("cargo advisory");
        let folder = &self.folder;
        fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder))
            .map_err(|error| {
                Failure::file(folder, format_args!("cannot write the pages: {error}"))
            })?;
        Ok(true)
    }
}
