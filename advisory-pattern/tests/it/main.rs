//! Tests of the crate's public functions.

mod advice;
mod ambiguity;
mod brute_force;
mod claim_record;
mod collision;
mod derivation;
mod escape;
mod messages;
mod overlap;
mod pair_text;
mod parse;
mod pattern;
mod record;
mod shape;
mod site_groups;
mod speed;
mod suggest;

use advisory_pattern::{Language, Pattern, Shape, parse};

fn pattern(text: &str) -> Pattern {
    parse(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
}

/// The pattern's language, with `text` for every shape that is not written.
fn language(text: &str) -> Language {
    pattern(text).language(|_| Shape::Text)
}

/// The rows of a table with `=>` between its columns.
fn rows<const COLUMNS: usize>(table: &str) -> impl Iterator<Item = [&str; COLUMNS]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let columns: Vec<_> = line.split("=>").map(str::trim).collect();
        columns.try_into().expect(line)
    })
}
