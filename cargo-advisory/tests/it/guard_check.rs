//! `check --database-url` finds a guarded table without its trigger, and a trigger of another key.
//!
//! The application's crates are linked into this program: see `application`. Its lock `room-night`
//! guards `blocks`.

use crate::guards::{BLOCKS, GUARD, check, guard};
use advisory_tests::Database;
use serde_json::Value;

use crate::programs::{advisory, assert_has, file, inventory};

/// The one finding's note.
async fn note(db: &Database) -> String {
    let said = check(db, &["--format", "json"]).await.exits(1);
    let value: Value = serde_json::from_str(&said.out).unwrap();
    let findings = value["findings"].as_array().unwrap();
    let findings: Vec<&Value> = findings
        .iter()
        .filter(|found| found["kind"] != "advice")
        .collect();
    assert_eq!(findings.len(), 1, "{value:#}");
    assert_eq!(findings[0]["kind"], "guard");
    assert_eq!(findings[0]["sites"][0]["guards"][0], "blocks");
    findings[0]["notes"][0].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_table_with_the_committed_trigger_is_in_order() {
    let db = Database::create().await;
    db.run(&format!("{BLOCKS};{GUARD}")).await;
    check(&db, &[]).await.exits(0);
}

#[tokio::test]
async fn a_table_that_is_not_there_or_has_no_trigger_is_a_finding() {
    let db = Database::create().await;
    assert_eq!(note(&db).await, "the database has no such table");
    db.run(BLOCKS).await;
    assert_eq!(note(&db).await, "it has no trigger for the lock");
    let said = check(&db, &[]).await;
    let lines = [
        "error: the table `blocks` is not guarded by the advisory lock `room-night`",
        "= help: run the migration that `cargo advisory migration require --lock 'room-night' --table blocks` prints",
    ];
    for line in lines {
        assert_has(&said.out, line);
    }
}

#[tokio::test]
async fn a_trigger_of_another_key_is_a_finding_with_both_keys() {
    let db = Database::create().await;
    db.run(BLOCKS).await;
    let key = "night:<room: int>:<night: date>:x";
    let words = ["--lock", "room-night", "--table", "blocks", "--key", key];
    guard(&db, &[&words[..], &["--column", "room=room_id"]].concat()).await;
    assert_eq!(
        note(&db).await,
        "it has a trigger `advisory_require_room_night` that computes another key: pattern night:<room: int>:<night: date>:x by sha256, and \
         the lock's is pattern night:<room: int>:<night: date> by sha256"
    );
}

#[tokio::test]
async fn a_trigger_that_was_changed_or_disabled_is_a_finding() {
    let db = Database::create().await;
    db.run(&format!("{BLOCKS};{GUARD}")).await;
    db.run("ALTER TABLE blocks DISABLE TRIGGER advisory_require_room_night")
        .await;
    let disabled = "it has a trigger `advisory_require_room_night` that is disabled, or does not run for each write";
    assert_eq!(note(&db).await, disabled);
    db.run("DROP TRIGGER advisory_require_room_night ON blocks; DROP FUNCTION advisory_require_blocks_room_night")
        .await;
    db.run(&GUARD.replace("AFTER INSERT OR UPDATE OR DELETE", "AFTER INSERT"))
        .await;
    assert_eq!(note(&db).await, disabled);
    db.run("DROP TRIGGER advisory_require_room_night ON blocks; DROP FUNCTION advisory_require_blocks_room_night")
        .await;
    // The markers are unchanged, but another column is in the key.
    db.run(&GUARD.replace("(room_id)::text", "(other_room)::text"))
        .await;
    assert_eq!(
        note(&db).await,
        "it has a trigger `advisory_require_room_night` whose function differs from what this command prints for the lock"
    );
}

#[test]
fn guarded_tables_are_in_every_format_of_the_inventory() {
    let written = inventory();
    let guarded = written.replacen(
        "\"guards\": []",
        "\"guards\": [\"bookings\", \"shop.slots\"]",
        1,
    );
    assert_ne!(guarded, written);
    let file = file("guarded.json", &guarded);
    let booking_service = crate::programs::booking_service();
    let said = advisory(&["check", "--artifact", &booking_service, "--registry", &file]);
    assert_eq!(
        said.code,
        Some(1),
        "the document names tables that the program does not"
    );
    let document = include_str!("../../../tests/harbour-lets/LOCKS.md");
    assert_has(
        &document,
        "Declared; held where it is used, guards `blocks` |",
    );
}
