//! Which subcommands are there, which arguments do they take, and which function runs each?

use std::path::PathBuf;

use advisory_pattern::Derivation;
use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use clap_complete::Shell;

use crate::cli::{Format, NAME, format, key_count, output};
use crate::failure::Failure;
use crate::{build, check, dump, graph, key, locks, migration, screen, selection};

/// One subcommand: its name, its help and arguments, and the function that runs it and tells whether it found nothing wrong.
struct Subcommand {
    name: &'static str,
    define: fn(Command) -> Command,
    run: fn(&ArgMatches) -> Result<bool, Failure>,
}

const SUBCOMMANDS: [Subcommand; 8] = [
    subcommand("dump", dump, dump::run),
    subcommand("check", check, check::run),
    subcommand("build", build, build::run),
    subcommand("key", key, key::run),
    subcommand("locks", locks, locks::run),
    subcommand("graph", graph, graph::run),
    subcommand("migration", migration, migration::run),
    subcommand("completions", completions, print_completions),
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
        .about("Lists and checks the advisory locks of a program, out of its artifacts, and shows who holds them now")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(SUBCOMMANDS.map(|known| (known.define)(Command::new(known.name))))
        .after_help(CODES)
}

/// Runs the subcommand; tells whether it found nothing wrong.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let Some((name, arguments)) = matches.subcommand() else {
        return Err(Failure::Input("a subcommand is missing".to_owned()));
    };
    let known = SUBCOMMANDS.iter().find(|known| known.name == name);
    let unknown = || Failure::Input(format!("unknown subcommand `{name}`"));
    (known.ok_or_else(unknown)?.run)(arguments)
}

fn dump(command: Command) -> Command {
    let dump = command
        .about("Lists the lock sites: as a table, as JSON, or as a registry document to commit")
        .long_about(
            "Builds the selection, or takes the artifacts given, and lists the lock sites in them. Nothing is run: every use of the \
             attribute leaves a record in the program.\n\nA build also reads the libraries on the way. An artifact that is named has \
             only what its linker kept: not a crate that stands in a manifest and nowhere in the source, nor what a static library \
             loses without `--whole-archive`. The last line says which crates were seen.",
        )
        .arg(format([Format::Table, Format::Json, Format::Markdown]))
        .arg(output())
        .arg(key_count())
        .arg(selection::artifact());
    selection::arguments(dump)
}

fn check(command: Command) -> Command {
    let file = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
    };
    let check = command
        .about("Fails if locks can collide, or if they are not what they were")
        .long_about(
            "Builds the selection, or takes the artifacts given, and compares every two lock sites across all crates: they have to be \
             one lock on purpose, or never share a key.",
        )
        .arg(format([Format::Text, Format::Json]))
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
        .arg(
            Arg::new("database-url")
                .long("database-url")
                .value_name("URL")
                .help("A database: fails if a table that a lock guards is without the lock's trigger, or has one of another key"),
        )
        .arg(key_count())
        .arg(selection::artifact());
    selection::arguments(check).after_help(CODES)
}

fn build(command: Command) -> Command {
    let build = command
        .about("Builds, writes `<artifact>.advisory.json` beside each artifact, and fails if locks can collide")
        .arg(format([Format::Text, Format::Json]));
    selection::arguments(build).after_help(CODES)
}

fn key(command: Command) -> Command {
    command
        .about("Prints the numbers that a key becomes, and the SQL that finds its holder")
        .arg(
            Arg::new("text")
                .value_name("KEY")
                .required(true)
                .allow_hyphen_values(true)
                .help("The key as rendered, such as `booking:42`"),
        )
        .arg(format([Format::Table, Format::Json]))
        .arg(output())
}

fn locks(command: Command) -> Command {
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
    command
        .about("Shows who holds which lock of a database right now, and who waits")
        .long_about(
            "Shows the advisory locks and leases of a database: who holds them, who waits, and who is in whose way. Needs no role but \
             `pg_monitor`, and shows less without it.\n\nNumbers have the names of the lock sites of `--artifact` or `--inventory`, where \
             they are fixed; else those in the comments that locked calls write in front of their queries.\n\nA call with `poll` asks again and again instead \
             of waiting at the server, and is not among the waiters.",
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

fn graph(command: Command) -> Command {
    command
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

fn migration(command: Command) -> Command {
    command
        .about("Prints the SQL of a migration")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(require(Command::new("require")))
}

fn require(command: Command) -> Command {
    let text =
        |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let derivations = Derivation::ALL.map(Derivation::name);
    let derivation = PossibleValuesParser::new(derivations)
        .try_map(|name| Derivation::from_name(&name).ok_or("unknown derivation"));
    let require = command
        .about("A trigger that refuses writes to a table by a session that does not hold the lock")
        .long_about(
            "Prints a Diesel migration: a trigger that computes the lock's key from the row, by the lock's own pattern, and refuses the \
             write unless this session holds the lock in exclusive mode. It binds programs that do not use the lock, and `psql`.\n\nThe \
             lock is found by its name in the program that cargo builds, or is given as a pattern. A placeholder is the column of its \
             name, unless `--column` says otherwise.",
        )
        .arg(text("lock", "NAME").help("The lock's name, or the path of its function or declared type"))
        .arg(
            text("key", "PATTERN")
                .help("The lock's key pattern with its shapes, such as `<tenant_id: uuid>:<date: date>`"),
        )
        .arg(
            text("derivation", "NAME")
                .requires("key")
                .value_parser(derivation)
                .help("How the key becomes a number [default: sha256]"),
        )
        .arg(
            text("table", "TABLE")
                .required(true)
                .help("The table to guard: `bookings`, or `shop.bookings`"),
        )
        .arg(
            text("column", "NAME=SQL")
                .action(ArgAction::Append)
                .help("A placeholder's column, or an expression over the row, such as `date=starts_at::date`"),
        )
        .arg(flag("down", "Prints `down.sql`, which drops the trigger"))
        .arg(output())
        .arg(
            Arg::new("inventory")
                .long("inventory")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .conflicts_with("artifact")
                .help("Reads a dumped inventory, as JSON, instead of building"),
        )
        .arg(selection::artifact());
    selection::arguments(require)
}

fn completions(command: Command) -> Command {
    command
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

fn print_completions(matches: &ArgMatches) -> Result<bool, Failure> {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut advisory(NAME), NAME, &mut script);
        screen::write(None, &String::from_utf8_lossy(&script))?;
    }
    Ok(true)
}
