//! `dump`: a list of the lock sites.

use clap::ArgMatches;

use crate::cli::Format;
use crate::failure::Failure;
use crate::{cli, json, markdown, screen, selection, table};

/// Runs `cargo advisory dump`.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let inventory = selection::inventory(matches)?;
    let to = cli::path(matches, "output").map(AsRef::as_ref);
    let text = match cli::format_of(matches) {
        Format::Json => json::write(&inventory),
        Format::Markdown => markdown::write(&inventory, cli::key_count_of(matches)),
        _ => table::write(&inventory, screen::width(to)),
    };
    screen::write(to, &text)?;
    Ok(true)
}
