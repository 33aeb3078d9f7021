//! Which words does the command understand?

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use clap_complete::Shell;
use std::path::PathBuf;

use crate::{locks, selection};

/// In which form an answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people: a table, or messages.
    Table,
    Json,
    Markdown,
}

const CODES: &str = "\
Exit codes:
    0  nothing was found
    1  a check found something, or locks have more than one order; `locks --older-than` found one;
       `cancel` or `terminate` did nothing
    2  wrong use, a file that can't be read, or a database that can't be reached
  101  `cargo build` failed";

/// Describes the whole command line, as cargo calls it.
pub(crate) fn command() -> Command {
    let styles = Styles::styled()
        .header(AnsiColor::Green.on_default().bold())
        .usage(AnsiColor::Green.on_default().bold())
        .literal(AnsiColor::Cyan.on_default().bold())
        .placeholder(AnsiColor::Cyan.on_default());
    let advisory = words("advisory");
    Command::new("cargo")
        .bin_name("cargo")
        .styles(styles)
        .subcommand_required(true)
        .subcommand(advisory)
}

/// Describes it under the name that it is called by: shells complete `cargo-advisory`, and zsh `cargo advisory` with it.
pub(crate) fn words(name: &'static str) -> Command {
    Command::new(name)
        .about("Lists and checks the advisory locks of a program, out of its artifacts, and shows who holds them now")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            dump(),
            check(),
            build(),
            key(),
            live(),
            graph(),
            completions(),
        ])
        .after_help(CODES)
}

fn dump() -> Command {
    let dump = Command::new("dump")
        .about("Lists the lock sites: as a table, as JSON, or as a registry document to commit")
        .long_about(
            "Builds the selection, or takes the artifacts given, and lists the lock sites in them. Nothing is run: every use of the \
             attribute leaves a record in the program.\n\nA build also reads the libraries on the way. An artifact that is named has \
             only what its linker kept: not a crate that stands in a manifest and nowhere in the source, nor what a static library \
             loses without `--whole-archive`. The last line says which crates were seen.",
        )
        .arg(format(&["table", "json", "markdown"]))
        .arg(output())
        .arg(count())
        .arg(artifact());
    selection::arguments(dump)
}

fn check() -> Command {
    let file = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
    };
    let check = Command::new("check")
        .about("Fails if locks can collide, or if they are not what they were")
        .long_about(
            "Builds the selection, or takes the artifacts given, and compares every two lock sites across all crates: they have to be \
             one lock on purpose, or never share a key.",
        )
        .arg(format(&["text", "json"]))
        .arg(output())
        .arg(
            file("registry")
                .action(ArgAction::Append)
                .help("The committed document, JSON or Markdown: fails if it is out of date (line numbers may be)"),
        )
        .arg(
            file("with")
                .action(ArgAction::Append)
                .help("The inventory, as JSON, of another service on the same database: fails if locks collide with its locks"),
        )
        .arg(
            file("against")
                .help("The inventory, as JSON, of the release before: fails if a lock's key has changed since"),
        )
        .arg(
            Arg::new("allow-key-change")
                .long("allow-key-change")
                .value_name("NAME")
                .action(ArgAction::Append)
                .requires("against")
                .help("The name, or the function's path, of a lock whose key changes on purpose"),
        )
        .arg(count())
        .arg(artifact());
    selection::arguments(check).after_help(CODES)
}

fn build() -> Command {
    let build = Command::new("build")
        .about("Builds, writes `<artifact>.advisory.json` beside each artifact, and fails if locks can collide")
        .arg(format(&["text", "json"]));
    selection::arguments(build).after_help(CODES)
}

fn key() -> Command {
    Command::new("key")
        .about("Prints the numbers that a key becomes, and the SQL that finds its holder")
        .arg(
            Arg::new("text")
                .value_name("KEY")
                .required(true)
                .allow_hyphen_values(true)
                .help("The key as rendered, such as `booking:42`"),
        )
        .arg(format(&["table", "json"]))
        .arg(output())
}

fn live() -> Command {
    let file = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
            .global(true)
    };
    let time = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("TIME")
            .value_parser(locks::time)
    };
    Command::new("locks")
        .about("Shows who holds which lock of a database right now, and who waits")
        .long_about(
            "Shows the advisory locks and leases of a database: who holds them, who waits, and who is in whose way. Needs no role but \
             `pg_monitor`, and shows less without it.\n\nNumbers have the names of the lock sites of `--artifact` or `--inventory`, where \
             they are fixed; else what the application's name says behind it, in brackets.",
        )
        .arg(
            Arg::new("database-url")
                .long("database-url")
                .value_name("URL")
                .global(true)
                .help("The database; else `DATABASE_URL`, of the environment or a `.env`"),
        )
        .arg(file("artifact").help("A program whose lock sites give the names"))
        .arg(file("inventory").help("A dumped inventory, as JSON, that gives them"))
        .arg(
            Arg::new("lease-table")
                .long("lease-table")
                .value_name("TABLE")
                .help("The table of leases [default: public.advisory_lease, if there is one]"),
        )
        .arg(
            Arg::new("claims")
                .long("claims")
                .value_name("TABLE")
                .action(ArgAction::Append)
                .help("A table with `locked_until` and `locked_by`, whose claimed rows are shown too"),
        )
        .arg(time("older-than").help(
            "Only locks that are held or waited for so long, such as `30s`; exits with 1 if there are some",
        ))
        .arg(flag("json", "Writes JSON; with `--watch` an object a line"))
        .arg(flag("watch", "Looks again and again, until Ctrl-C"))
        .arg(
            time("interval")
                .requires("watch")
                .help("How often `--watch` looks [default: 2s]"),
        )
        .subcommand(end("cancel", "Ends the statement that a backend runs"))
        .subcommand(end("terminate", "Ends a backend's session, and with it all that it holds"))
        .after_help(CODES)
}

fn end(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .long_about(format!(
            "{about}. Shows first who it is, what it holds and what would be lost, and asks.\n\nOnly backends that have to do with an \
             advisory lock of this database. Needs the backend's own role, or `pg_signal_backend`."
        ))
        .arg(
            Arg::new("pid")
                .value_name("PID")
                .required(true)
                .value_parser(value_parser!(i32).range(1..)),
        )
        .arg(flag("yes", "Does not ask").short('y'))
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

fn graph() -> Command {
    Command::new("graph")
        .about("Draws the order in which tests have taken their locks, for Graphviz; fails if there are two")
        .long_about(
            "Writes the recorded order of locks as DOT. A debug build records it where `ADVISORY_LOCK_ORDER` names a file, to which \
             each process appends: `ADVISORY_LOCK_ORDER=\"$PWD/target/lock-order\" cargo test`. Delete the file before a run that is \
             to stand alone.\n\nArrows that go round are red, and told on the standard error: two calls can wait for each other.",
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("What was recorded; without it the file that `ADVISORY_LOCK_ORDER` names"),
        )
        .arg(output())
        .after_help(CODES)
}

fn completions() -> Command {
    Command::new("completions")
        .about("Prints a completion script for a shell")
        .long_about(
            "Prints a script that completes `cargo-advisory`; in zsh, saved as `_cargo-advisory` on the `fpath`, it also completes \
             `cargo advisory`.",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell)),
        )
}

fn format(known: &'static [&'static str]) -> Arg {
    Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(known.to_vec())
        .default_value(known[0])
        .help("How the answer is written")
}

fn output() -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .value_hint(ValueHint::FilePath)
        .help("Writes the answer to a file")
}

fn count() -> Arg {
    Arg::new("keys")
        .long("keys")
        .value_name("NUMBER")
        .value_parser(value_parser!(u64))
        .default_value("1000")
        .help("The registry document gives the odds of a collision for so many keys")
}

fn artifact() -> Arg {
    Arg::new("artifact")
        .long("artifact")
        .value_name("FILE")
        .action(ArgAction::Append)
        .value_parser(value_parser!(PathBuf))
        .value_hint(ValueHint::FilePath)
        .conflicts_with_all(selection::names())
        .help("Reads a program, library or archive instead of building")
}

/// Gives the format that was asked for.
pub(crate) fn format_of(matches: &ArgMatches) -> Format {
    match matches.get_one::<String>("format").map(String::as_str) {
        Some("json") => Format::Json,
        Some("markdown") => Format::Markdown,
        _ => Format::Table,
    }
}

/// Gives a file that was named.
pub(crate) fn path<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a PathBuf> {
    matches.get_one::<PathBuf>(name)
}

/// Gives every file that was named.
pub(crate) fn paths(matches: &ArgMatches, name: &str) -> Vec<PathBuf> {
    let paths = matches.get_many::<PathBuf>(name);
    paths.into_iter().flatten().cloned().collect()
}
