//! `cargo advisory check`: collisions, and differences from a registry, an earlier release or a database.

mod advice;
pub(crate) mod collisions;
mod guards;
pub(crate) mod key_changes;
pub(crate) mod registry;

use std::collections::BTreeMap;

use clap::ArgMatches;

use crate::failure::Failure;
use crate::finding::ADVICE;
use crate::{cli, finding, json, screen, selection};

/// Runs `cargo advisory check`; returns whether nothing was found.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let inventory = selection::inventory_to_check(matches)?;
    let mut findings = collisions::within(&inventory)?;
    for file in cli::paths(matches, "with") {
        findings.extend(collisions::between(
            &inventory,
            &json::read_file(&file)?,
            &file,
        )?);
    }
    if let Some(file) = cli::path(matches, "against") {
        let allowed = matches.get_many::<String>("allow-key-change");
        let allowed: Vec<String> = allowed.into_iter().flatten().cloned().collect();
        let old = json::read_file(file)?;
        findings.extend(key_changes::find(&inventory, &old, file, &allowed));
    }
    for file in cli::paths(matches, "registry") {
        let key_count = cli::key_count_of(matches);
        findings.extend(registry::compare(&inventory, &file, key_count)?);
    }
    if let Some(address) = matches.get_one::<String>("database-url") {
        findings.extend(guards::find(&inventory, address)?);
        findings.extend(advice::find(&inventory, address, &kept(matches)?)?);
    }
    let text = finding::write(&findings, &inventory.summary(), cli::format_of(matches));
    screen::write(cli::path(matches, "output").map(AsRef::as_ref), &text)?;
    Ok(findings.iter().all(|finding| finding.kind == ADVICE))
}

/// The locks of `--keep-lock`, each with its reason.
fn kept(matches: &ArgMatches) -> Result<BTreeMap<String, String>, Failure> {
    let given = matches
        .get_many::<String>("keep-lock")
        .into_iter()
        .flatten();
    let kept = given.map(|given| match given.split_once('=') {
        Some((lock, reason)) if !reason.trim().is_empty() => {
            Ok((lock.to_owned(), reason.to_owned()))
        }
        _ => Err(Failure::Input(format!(
            "`--keep-lock {given}` has no reason: write `--keep-lock 'LOCK=why the lock is needed'`"
        ))),
    });
    kept.collect()
}
