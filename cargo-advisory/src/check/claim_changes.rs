//! Compares the claims of two releases, with what goes wrong while workers of both run.

use advisory_pattern::ClaimRecord;

use super::key_changes::Release;
use crate::finding::{Finding, Place};
use crate::inventory::{Inventory, claim_path};
use crate::text::joined;

/// The columns of a claim, and what happens while two releases use different ones.
const COLUMNS: &str = "\
locked_until: each claims rows that the other's workers are running, because it looks at another column
locked_by: a worker that has lost its row to the other release can still end it
completed_at: each runs the rows again that the other has completed
failed_at: each runs the rows again that the other has given up
run_at: each claims rows at once that the other has scheduled for later, or retries later
attempts: each counts its own attempts, so a row is tried up to twice as often
per: each limits the rows that run by its own column, so more of them run than the limit says";

/// Finds claims that differ from the previous release in a way that matters while both run. `ttl`
/// and `renew` are written into each row, `max_attempts` is that of the release that ends the
/// attempt, and only people read the column of the error.
pub(crate) fn find(inventory: &Inventory, release: &Release<'_>) -> Vec<Finding> {
    let Release { old, from, allowed } = *release;
    let mut findings = Vec::new();
    for before in &old.claims {
        // The type of a row can be renamed, and its table, but hardly both at once.
        let same_row = |claim: &&ClaimRecord| claim_path(claim) == claim_path(before);
        let same_table = |claim: &&ClaimRecord| claim.table_name() == before.table_name();
        let claims = || inventory.claims.iter();
        let both = claims().find(|claim| same_row(claim) && same_table(claim));
        let now = both.or_else(|| claims().find(same_row));
        let Some(now) = now.or_else(|| claims().find(same_table)) else {
            continue;
        };
        let is_allowed = |claim: &ClaimRecord| allowed.contains(&claim_path(claim));
        if is_allowed(before) || is_allowed(now) {
            continue;
        }
        findings.extend(changes(before, now).into_iter().map(|(what, note)| Finding {
            kind: "claim-change",
            message: format!("the claim `{}`: {what}", claim_path(now)),
            places: vec![Place::claim(now, None), Place::claim(before, Some(from))],
            notes: vec![format!("while both releases run, {note}")],
            help: format!(
                "stop all workers of the old release before the new one starts, and if that is so: `--allow-key-change {}`",
                claim_path(now)
            ),
        }));
    }
    findings
}

fn changes(before: &ClaimRecord, now: &ClaimRecord) -> Vec<(String, &'static str)> {
    let mut changes = Vec::new();
    let mut add = |what: &str, was: &str, is: &str, note| {
        if was != is {
            let text = format!("its {what} has changed from {was} to {is}");
            changes.push((text, note));
        }
    };
    add(
        "table",
        &code(before.table_name()),
        &code(now.table_name()),
        "each sees the rows of its own table only, and rows that are left in the old one are run by nobody",
    );
    for (argument, note) in COLUMNS.lines().filter_map(|line| line.split_once(": ")) {
        let column = |claim: &ClaimRecord| match claim.column(argument) {
            Some(column) => code(column),
            None if claim.deletes.iter().any(|deletes| deletes == argument) => {
                "the deletion of the row".to_owned()
            }
            None => "no column".to_owned(),
        };
        let (was, is) = (column(before), column(now));
        add(&format!("`{argument}`"), &was, &is, note);
    }
    let limit = |claim: &ClaimRecord| claim.limit.as_deref().map_or("none".to_owned(), code);
    if before.column("per") == now.column("per") {
        add(
            "`limit`",
            &limit(before),
            &limit(now),
            "each counts the rows of both, so as many run as the larger number allows",
        );
    }
    // An inventory of an earlier version of this command has neither key nor order.
    if !before.key.is_empty() && !now.key.is_empty() {
        add(
            "order",
            &order(before),
            &order(now),
            "each claims by its own order and by an index of its own: run `cargo advisory migration claim` \
             before the new release starts, and drop the old index after the old one has stopped",
        );
    }
    changes
}

fn order(claim: &ClaimRecord) -> String {
    let order = claim.claim_order().into_iter();
    let order = order.map(|(column, direction)| format!("{column} {direction}").trim().to_owned());
    code(&joined(order, ", "))
}

fn code(text: &str) -> String {
    format!("`{text}`")
}
