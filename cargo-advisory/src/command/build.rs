//! The command line of `build`.

use clap::Command;

use super::CODES;
use crate::cli::{Format, format};
use crate::selection;

pub(super) fn define(command: Command) -> Command {
    let build = command
        .about("Runs `cargo build`, writes `<artifact>.advisory.json` beside each artifact, and fails if locks can collide")
        .arg(format([Format::Text, Format::Json]));
    selection::arguments(build).after_help(CODES)
}
