//! The artifacts that a subcommand reads: those that are named, or those that `cargo build` makes.
//!
//! The flags are passed to `cargo build` unchanged; flags that are not in this list go after `--`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::{cargo, cli};

/// The heading of the flags in the help.
const HEADING: &str = "Selection (as for `cargo build`)";

/// How many values a flag takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    One,
    Many,
}

#[derive(Clone, Copy)]
struct Flag {
    name: &'static str,
    short: Option<char>,
    takes: Takes,
    value: &'static str,
    help: &'static str,
}

const fn flag(name: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        short: None,
        takes: Takes::Nothing,
        value: "",
        help,
    }
}

const fn option(name: &'static str, takes: Takes, value: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        short: None,
        takes,
        value,
        help,
    }
}

const fn short(short: char, flag: Flag) -> Flag {
    Flag {
        short: Some(short),
        ..flag
    }
}

use Takes::{Many, One};

const FLAGS: [Flag; 25] = [
    short('p', option("package", Many, "SPEC", "Package to build")),
    flag("workspace", "All packages of the workspace"),
    option("exclude", Many, "SPEC", "Package to leave out"),
    flag("lib", "Only the library"),
    flag("bins", "All programs"),
    option("bin", Many, "NAME", "Only this program"),
    flag("examples", "All examples"),
    option("example", Many, "NAME", "Only this example"),
    flag("tests", "All test programs"),
    option("test", Many, "NAME", "Only this test program"),
    flag("all-targets", "All targets"),
    short(
        'F',
        option("features", Many, "FEATURES", "Features to enable"),
    ),
    flag("all-features", "All features"),
    flag("no-default-features", "Without the default features"),
    short('r', flag("release", "With the release profile")),
    option("profile", One, "NAME", "With this profile"),
    option("target", Many, "TRIPLE", "For this target"),
    option("target-dir", One, "DIRECTORY", "Where artifacts go"),
    option("manifest-path", One, "PATH", "Path to Cargo.toml"),
    short('j', option("jobs", One, "N", "Parallel jobs")),
    option("config", Many, "KEY=VALUE", "Configuration value"),
    flag("locked", "Cargo.lock must not change"),
    flag("offline", "Without the network"),
    flag("frozen", "`--locked` and `--offline`"),
    short('q', flag("quiet", "Without cargo's own messages")),
];

/// Adds the flags to a subcommand.
pub(crate) fn arguments(command: Command) -> Command {
    let flags = FLAGS.iter().map(|flag| {
        let arg = Arg::new(flag.name).long(flag.name).help(flag.help);
        let arg = match flag.takes {
            Takes::Nothing => arg.action(ArgAction::SetTrue),
            One => arg.value_name(flag.value),
            Many => arg.value_name(flag.value).action(ArgAction::Append),
        };
        let arg = flag.short.into_iter().fold(arg, Arg::short);
        arg.help_heading(HEADING)
    });
    command.args(flags).arg(
        Arg::new("rest")
            .value_name("FLAGS")
            .last(true)
            .num_args(0..)
            .allow_hyphen_values(true)
            .help("More flags for `cargo build`"),
    )
}

/// Adds the alternative to building.
pub(crate) fn artifact() -> Arg {
    Arg::new("artifact")
        .long("artifact")
        .value_name("FILE")
        .action(ArgAction::Append)
        .value_parser(value_parser!(PathBuf))
        .value_hint(ValueHint::FilePath)
        .conflicts_with_all(FLAGS.iter().map(|flag| flag.name).chain(["rest"]))
        .help("Reads a program, library or archive instead of building")
}

/// Reads the artifacts that are named, or else builds and reads those of the selection.
pub(crate) fn inventory(matches: &ArgMatches) -> Result<Inventory, Failure> {
    let named = cli::paths(matches, "artifact");
    if named.is_empty() {
        return Inventory::read(&cargo::build(&flags(matches))?);
    }
    Inventory::read(&named)
}

/// Reads the same for an answer that depends on the lock sites: each artifact that is named must have some.
pub(crate) fn inventory_to_check(matches: &ArgMatches) -> Result<Inventory, Failure> {
    let named = cli::paths(matches, "artifact");
    if named.is_empty() {
        return inventory(matches);
    }
    Inventory::read_named(&named)
}

/// Gives the flags for `cargo build`.
pub(crate) fn flags(matches: &ArgMatches) -> Vec<String> {
    let mut flags = Vec::new();
    for flag in &FLAGS {
        if flag.takes == Takes::Nothing {
            if matches.get_flag(flag.name) {
                flags.push(format!("--{}", flag.name));
            }
            continue;
        }
        for value in matches.get_many::<String>(flag.name).into_iter().flatten() {
            flags.push(format!("--{}={value}", flag.name));
        }
    }
    let rest = matches.get_many::<String>("rest");
    flags.extend(rest.into_iter().flatten().cloned());
    flags
}
