//! Which lock sites are there?

use clap::ArgMatches;

use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::{cargo, cli, json, markdown, screen, selection, table};

/// Answers `cargo advisory dump`.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let inventory = inventory(matches)?;
    let to = cli::path(matches, "output").map(AsRef::as_ref);
    let text = match cli::format_of(matches) {
        cli::Format::Json => json::write(&inventory),
        cli::Format::Markdown => markdown::write(&inventory, count(matches)),
        cli::Format::Table => table::write(&inventory, screen::width(to)),
    };
    screen::write(to, &text)
}

/// Reads the artifacts that were named, or those of the selection.
pub(crate) fn inventory(matches: &ArgMatches) -> Result<Inventory, Failure> {
    let named = cli::paths(matches, "artifact");
    if named.is_empty() {
        return Inventory::read(&cargo::build(&selection::flags(matches))?);
    }
    Inventory::read(&named)
}

/// For so many keys the registry document gives the odds.
pub(crate) fn count(matches: &ArgMatches) -> u64 {
    matches.get_one("keys").copied().unwrap_or(1_000)
}
