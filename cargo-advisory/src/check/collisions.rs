//! Locks that can collide, in one program or between two.

use std::path::Path;

use advisory_pattern::{RecordError, SiteCollision, site_collisions, site_collisions_between};

use crate::failure::Failure;
use crate::finding::{Finding, Place};
use crate::inventory::Inventory;
use crate::text::plural;

pub(crate) fn within(inventory: &Inventory) -> Result<Vec<Finding>, Failure> {
    findings(site_collisions(&inventory.sites), None)
}

pub(crate) fn between(
    inventory: &Inventory,
    other: &Inventory,
    from: &Path,
) -> Result<Vec<Finding>, Failure> {
    let pairs = site_collisions_between(&inventory.sites, &other.sites);
    findings(pairs, Some(from))
}

fn findings(
    collisions: Result<Vec<SiteCollision<'_>>, RecordError>,
    from: Option<&Path>,
) -> Result<Vec<Finding>, Failure> {
    let finding = |pair: &SiteCollision<'_>| Finding {
        kind: "collision",
        message: pair.headline.clone(),
        places: vec![
            Place::site(pair.here, None, ""),
            Place::site(pair.there, from, "is the other lock"),
        ],
        notes: [pair.collision.to_string()]
            .into_iter()
            .chain(more(pair))
            .collect(),
        help: pair.advice.text.clone(),
    };
    Ok(collisions?.iter().map(finding).collect())
}

fn more(pair: &SiteCollision<'_>) -> Option<String> {
    let sites = plural(pair.more, "more site");
    (pair.more > 0).then(|| {
        format!("{sites} with one of these keys: they collide too, and the help is for all of them")
    })
}

#[cfg(test)]
mod tests {
    use advisory_pattern::Record;

    use super::within;
    use crate::inventory::Inventory;

    /// There is one finding for all of them.
    #[test]
    fn a_third_site_of_one_number_is_counted() {
        let site = |krate: &str| Record {
            kind: "fn".to_owned(),
            written: vec!["7".to_owned()],
            keys: vec!["number 7".to_owned()],
            derivation: "sha256".to_owned(),
            scope: "xact".to_owned(),
            mode: "exclusive".to_owned(),
            module: krate.to_owned(),
            function: "close".to_owned(),
            krate: krate.to_owned(),
            version: "1.0.0".to_owned(),
            ..Record::default()
        };
        for (crates, more) in [
            (&["bank", "shop"][..], None),
            (&["bank", "shop", "till"], Some("1 more site with")),
        ] {
            let inventory = Inventory {
                sites: crates.iter().map(|krate| site(krate)).collect(),
                claims: Vec::new(),
            };
            let findings = within(&inventory).unwrap();
            let [finding] = &findings[..] else {
                panic!("{} findings", findings.len());
            };
            let last = finding.notes.get(1).map(|note| &note[..16]);
            assert_eq!(last, more, "{:?}", finding.notes);
        }
    }
}
