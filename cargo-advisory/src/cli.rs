//! The arguments that several subcommands share.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, ValueHint, value_parser};

use crate::duration;

/// The program's name; cargo calls it as two words.
pub(crate) const NAME: &str = "cargo-advisory";

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// A table for people.
    Table,
    /// Messages for people.
    #[default]
    Text,
    Json,
    Markdown,
    /// A graph for Graphviz.
    Dot,
    /// A graph for Mermaid, which code hosts draw.
    Mermaid,
}

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Text => "text",
            Self::Json => "json",
            Self::Markdown => "markdown",
            Self::Dot => "dot",
            Self::Mermaid => "mermaid",
        }
    }
}

/// `--format` with these values, the first of which is the default.
pub(crate) fn format<const N: usize>(formats: [Format; N]) -> Arg {
    let parser = PossibleValuesParser::new(formats.map(Format::name)).try_map(move |name| {
        let format = formats.into_iter().find(|format| format.name() == name);
        format.ok_or("unknown format")
    });
    Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(parser)
        .default_value(formats[0].name())
        .help("The output format")
}

/// A switch.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// The URL of the database to look at.
pub(crate) fn database_url() -> Arg {
    Arg::new("database-url")
        .long("database-url")
        .value_name("URL")
        .help("The database [default: `DATABASE_URL` from the environment or a `.env`]")
}

/// A duration.
pub(crate) fn time(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("TIME")
        .value_parser(duration::parse)
}

/// The table of leases to look at.
pub(crate) fn lease_table() -> Arg {
    Arg::new("lease-table")
        .long("lease-table")
        .value_name("TABLE")
        .help("The lease table [default: public.advisory_lease, if it exists]")
}

pub(crate) fn output() -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .value_hint(ValueHint::FilePath)
        .help("Writes to a file instead of the standard output")
}

pub(crate) fn key_count() -> Arg {
    Arg::new("keys")
        .long("keys")
        .value_name("NUMBER")
        .value_parser(value_parser!(u64))
        .default_value("1000")
        .help("For how many keys the registry document gives the odds of a collision")
}

/// Gives the format that was asked for.
pub(crate) fn format_of(matches: &ArgMatches) -> Format {
    matches.get_one("format").copied().unwrap_or_default()
}

/// Gives the number of keys for which the registry document has the odds of a collision.
pub(crate) fn key_count_of(matches: &ArgMatches) -> u64 {
    matches.get_one("keys").copied().unwrap_or(1_000)
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
