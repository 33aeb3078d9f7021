//! Which locks can collide, across all crates and with other services?

use std::path::Path;

use advisory_pattern::{Meeting, RecordError, meetings, meetings_between};

use crate::failure::Failure;
use crate::finding::{Finding, Place};
use crate::inventory::Inventory;

/// Compares every two sites of the program.
pub(crate) fn inside(inventory: &Inventory) -> Result<Vec<Finding>, Failure> {
    findings(meetings(&inventory.sites), None)
}

/// Compares every site of the program with those of another service.
pub(crate) fn with(
    inventory: &Inventory,
    other: &Inventory,
    from: &Path,
) -> Result<Vec<Finding>, Failure> {
    findings(meetings_between(&inventory.sites, &other.sites), Some(from))
}

fn findings(
    meetings: Result<Vec<Meeting<'_>>, RecordError>,
    from: Option<&Path>,
) -> Result<Vec<Finding>, Failure> {
    let meetings = meetings.map_err(|error| Failure::Input(error.to_string()))?;
    let finding = |meeting: &Meeting<'_>| Finding {
        kind: "collision",
        message: meeting.headline(),
        places: vec![
            Place::site(meeting.here, None, ""),
            Place::site(meeting.there, from, "is the other lock"),
        ],
        notes: vec![meeting.collision.to_string()],
        help: meeting.help(),
    };
    Ok(meetings.iter().map(finding).collect())
}
