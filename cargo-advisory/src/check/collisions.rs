//! Locks that can collide, in one program or between two.

use std::path::{Path, PathBuf};

use advisory_pattern::{RecordError, SiteCollision, site_collisions, site_collisions_between};

use crate::failure::Result;
use crate::finding::{Finding, Place};
use crate::inventory::Inventory;
use crate::json;
use crate::text::plural;

/// Finds collisions in a program, and between it and the programs of these inventories.
pub(crate) fn find(inventory: &Inventory, others: &[PathBuf]) -> Result<Vec<Finding>> {
    let sites = &inventory.sites;
    let mut all = findings(site_collisions(sites), None)?;
    for file in others {
        let other = json::read_file(file)?;
        let pairs = site_collisions_between(sites, &other.sites);
        all.extend(findings(pairs, Some(file))?);
    }
    Ok(all)
}

fn findings(
    collisions: Result<Vec<SiteCollision<'_>>, RecordError>,
    from: Option<&Path>,
) -> Result<Vec<Finding>> {
    let finding = |pair: &SiteCollision<'_>| Finding {
        kind: "collision",
        message: pair.headline.clone(),
        places: vec![
            Place::site(pair.here, None, ""),
            Place::site(pair.there, from, "is the other lock"),
        ],
        notes: match pair.more {
            0 => vec![pair.collision.to_string()],
            more => vec![
                pair.collision.to_string(),
                format!(
                    "{} with one of these keys: they collide too, and the help is for all of them",
                    plural(more, "more site")
                ),
            ],
        },
        help: pair.advice.text.clone(),
    };
    Ok(collisions?.iter().map(finding).collect())
}
