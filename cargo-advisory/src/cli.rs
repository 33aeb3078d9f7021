//! The arguments that several subcommands share.
//!
//! A doc comment on an argument is its help. One on a struct that a subcommand flattens would
//! replace the subcommand's own.

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use advisory_runtime::lease::Table;
use anstream::ColorChoice;
use clap::{Args, ValueEnum, ValueHint};

use crate::failure::{Result, bail};
use crate::{duration, screen};

pub(crate) const NAME: &str = "cargo-advisory";

/// The end of the help of each subcommand that can find something.
pub(crate) const CODES: &str = "\
Exit codes:
    0  nothing was found
    1  `check` or `build` found something; `graph` found several orders; `key --find` found no key;
       `locks --older-than` found a lock; `cancel`, `terminate`, `release`, `resign`, `retry` or
       `prune` did nothing; `claim show` found no row;
       `doctor` found a problem, or `doctor --strict` anything that is not fine
    2  wrong use, a file that cannot be read, or a database that cannot be reached; `locks` could
       not read the leases, or `locks --older-than` does not know how old a lock is
  101  `cargo build` failed";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

// The form and the destination of an answer.
#[derive(Args)]
pub(crate) struct Answer {
    /// The output format
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Answer {
    /// Writes the text for a screen of this width, or the JSON.
    pub(crate) fn write(
        &self,
        text: impl FnOnce(Option<usize>) -> String,
        json: impl FnOnce() -> String,
    ) -> Result<()> {
        self.output.write(&match self.format {
            Format::Text => text(self.output.width()),
            Format::Json => json(),
        })
    }
}

// The destination of an answer.
#[derive(Args)]
pub(crate) struct Output {
    /// Writes to a file instead of the standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

impl Output {
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        screen::write(self.output.as_deref(), text)
    }

    /// The columns that a table can use; `None` if it is not for a terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        screen::width(self.output.as_deref())
    }

    pub(crate) fn is_file(&self) -> bool {
        self.output.is_some()
    }
}

// The form, the destination and the refreshes of a view.
#[derive(Args)]
pub(crate) struct LiveAnswer {
    /// The output format; `json` with `--watch` is one object per line
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Refreshes until Ctrl-C
    #[arg(long, conflicts_with = "output")]
    watch: bool,
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "watch", help = "How often `--watch` refreshes [default: 2s]")]
    interval: Option<Duration>,
}

impl LiveAnswer {
    /// The interval of `--watch`, which is at least `shortest`: reading must not be all that the
    /// server does. `None` without `--watch`.
    pub(crate) fn every(&self, shortest: Duration) -> Option<Duration> {
        let interval = self.interval.unwrap_or(Duration::from_secs(2));
        self.watch.then_some(interval.max(shortest))
    }
}

// The confirmation of a change.
#[derive(Args)]
pub(crate) struct Confirmation {
    /// Does not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl Confirmation {
    /// Asks on the terminal, unless `--yes` is given. Any other answer than yes means `false`.
    pub(crate) fn is_given(&self, question: &str) -> Result<bool> {
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            bail!("cannot ask for confirmation without a terminal: write `--yes`");
        }
        screen::note(&format!("{question}? [y/N] "));
        let mut answer = String::new();
        if let Err(error) = io::stdin().lock().read_line(&mut answer) {
            bail!("standard input: {error}");
        }
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}

pub(crate) const LEASE_TABLE: &str =
    "The lease table [default: public.advisory_lease, if it exists]";

pub(crate) fn lease_table(name: Option<&String>) -> Result<Table> {
    Ok(name.map_or(Ok(Table::new()), |name| Table::new().named(name))?)
}

/// Chooses colours before the command line is parsed, because its errors and its help have some:
/// `--color`, or else `CARGO_TERM_COLOR` as in cargo, or else what the terminal and `NO_COLOR` say.
pub(crate) fn choose_colors(words: &[OsString]) {
    let mut words = words.iter().filter_map(|word| word.to_str());
    let mut given = None;
    while let Some(word) = words.next().filter(|word| *word != "--") {
        match word.strip_prefix("--color") {
            Some("") => given = words.next(),
            Some(value) => given = value.strip_prefix('=').or(given),
            None => {}
        }
    }
    let variable = std::env::var("CARGO_TERM_COLOR").ok();
    match given.or(variable.as_deref()) {
        Some("always") => ColorChoice::Always.write_global(),
        Some("never") => ColorChoice::Never.write_global(),
        _ => {}
    }
}
