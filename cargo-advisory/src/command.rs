//! The subcommands: their arguments, and the functions that run them.

mod build;
mod check;
mod completions;
mod doctor;
mod dump;
mod graph;
mod key;
mod lease;
mod locks;
mod log;
mod manual;
mod migration;
mod report;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgMatches, Command};

use crate::failure::Failure;

/// One subcommand: its name, its help and arguments, and the function that runs it and returns whether it found nothing wrong.
struct Subcommand {
    name: &'static str,
    define: fn(Command) -> Command,
    run: fn(&ArgMatches) -> Result<bool, Failure>,
}

const SUBCOMMANDS: [Subcommand; 13] = [
    subcommand("dump", dump::define, crate::dump::run),
    subcommand("check", check::define, crate::check::run),
    subcommand("build", build::define, crate::build::run),
    subcommand("key", key::define, crate::key::run),
    subcommand("locks", locks::define, crate::locks::run),
    subcommand("lease", lease::define, crate::lease::run),
    subcommand("log", log::define, crate::log::run),
    subcommand("doctor", doctor::define, crate::doctor::run),
    subcommand("graph", graph::define, crate::graph::run),
    subcommand("report", report::define, crate::report::run),
    subcommand("migration", migration::define, crate::migration::run),
    subcommand("completions", completions::define, completions::run),
    subcommand("manual", manual::define, manual::run),
];

const fn subcommand(
    name: &'static str,
    define: fn(Command) -> Command,
    run: fn(&ArgMatches) -> Result<bool, Failure>,
) -> Subcommand {
    Subcommand { name, define, run }
}

const CODES: &str = "\
Exit codes:
    0  nothing was found
    1  `check` or `build` found something; `graph` found several orders; `locks --older-than` found a lock;
       `cancel`, `terminate`, `release` or `resign` did nothing; `doctor` found a problem, or `doctor --strict`
       anything that is not fine; `key --find` found no key
    2  wrong use, a file that cannot be read, or a database that cannot be reached; `locks` could not read the
       leases, or `locks --older-than` does not know how old a lock is
  101  `cargo build` failed";

/// Describes the whole command line, as cargo calls it.
pub(crate) fn command() -> Command {
    let styles = Styles::styled()
        .header(AnsiColor::Green.on_default().bold())
        .usage(AnsiColor::Green.on_default().bold())
        .literal(AnsiColor::Cyan.on_default().bold())
        .placeholder(AnsiColor::Cyan.on_default());
    let advisory = advisory("advisory");
    Command::new("cargo")
        .bin_name("cargo")
        .styles(styles)
        .subcommand_required(true)
        .subcommand(advisory)
}

/// Describes the part of the command line after `cargo`. Shells complete it under the name `cargo-advisory`.
fn advisory(name: &'static str) -> Command {
    Command::new(name)
        .about("Lists and checks the advisory locks of a program, and shows who holds them")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(SUBCOMMANDS.map(|known| (known.define)(Command::new(known.name))))
        .after_help(CODES)
}

/// Runs the subcommand; returns whether it found nothing wrong.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let Some((name, arguments)) = matches.subcommand() else {
        return Err(Failure::Input(
            "no subcommand: write `cargo advisory help`".to_owned(),
        ));
    };
    let known = SUBCOMMANDS.iter().find(|known| known.name == name);
    let unknown = || Failure::Input(format!("unknown subcommand `{name}`"));
    (known.ok_or_else(unknown)?.run)(arguments)
}
