//! Which locks can collide, across all crates and with other services?

use std::path::Path;

use advisory_pattern::{Collision, Lock, Record};

use crate::failure::Failure;
use crate::finding::{Finding, Place};
use crate::inventory::Inventory;

/// A lock of a site, and its key as written.
struct Used<'a> {
    site: &'a Record,
    written: String,
    lock: Lock,
}

/// Compares every two sites of the program.
pub(crate) fn inside(inventory: &Inventory) -> Result<Vec<Finding>, Failure> {
    let locks = locks(inventory)?;
    let mut findings = Vec::new();
    for (at, here) in locks.iter().enumerate() {
        for there in &locks[..at] {
            let is_one = std::ptr::eq(here.site, there.site)
                || here.site.version != there.site.version && is_same_code(here.site, there.site);
            if !is_one && let Some(collision) = here.lock.collision(&there.lock) {
                findings.push(finding(here, there, None, &collision));
            }
        }
    }
    Ok(findings)
}

/// Compares every site of the program with those of another service.
pub(crate) fn with(
    inventory: &Inventory,
    other: &Inventory,
    from: &Path,
) -> Result<Vec<Finding>, Failure> {
    let (here, there) = (locks(inventory)?, locks(other)?);
    let mut findings = Vec::new();
    for here in &here {
        for there in &there {
            // A crate that both services use is no collision, whatever line its function has by now.
            if !is_same_code(here.site, there.site)
                && let Some(collision) = here.lock.collision(&there.lock)
            {
                findings.push(finding(here, there, Some(from), &collision));
            }
        }
    }
    Ok(findings)
}

/// Whether two sites are one function of one crate with the same keys, perhaps of two versions.
fn is_same_code(here: &Record, there: &Record) -> bool {
    fn code(site: &Record) -> impl PartialEq + '_ {
        let Record {
            krate,
            module,
            function,
            kind,
            keys,
            derivation,
            ..
        } = site;
        (krate, module, function, kind, keys, derivation)
    }
    code(here) == code(there)
}

fn locks(inventory: &Inventory) -> Result<Vec<Used<'_>>, Failure> {
    let mut locks = Vec::new();
    for site in &inventory.sites {
        let known = site
            .locks()
            .map_err(|error| Failure::Input(error.to_string()))?;
        for (written, lock) in known {
            locks.push(Used {
                site,
                written,
                lock,
            });
        }
    }
    Ok(locks)
}

fn finding(here: &Used<'_>, there: &Used<'_>, from: Option<&Path>, why: &Collision) -> Finding {
    let word = (here.site.kind != "macro").then_some(here.site.function.as_str());
    Finding {
        kind: "collision",
        message: why.headline(&here.written, &there.written),
        places: vec![
            Place::site(here.site, None, ""),
            Place::site(there.site, from, "is the other lock"),
        ],
        notes: vec![why.to_string()],
        help: why.help(&here.written, word),
    }
}
