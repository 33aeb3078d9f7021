//! Triggers that refuse writes without the lock: `cargo advisory migration require`, and the check
//! of a table.

use crate::programs::{Said, run_at};
use advisory_tests::Database;

/// The start of the refusal.
pub(crate) const REFUSED: &str = "this session does not hold the advisory lock";

/// The output of the command.
pub(crate) async fn require(words: &[&str]) -> Said {
    run_at("", &[&["migration", "require"], words].concat()).await
}

/// Runs the migration that the command prints.
pub(crate) async fn guard(db: &Database, words: &[&str]) {
    let said = require(words).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    db.run(&said.out).await;
}

pub(crate) const BLOCKS: &str =
    "CREATE TABLE blocks (room_id bigint, other_room bigint, night date)";

pub(crate) const GUARD: &str =
    include_str!("../../../tests/harbour-lets/store/migrations/0002_guarded_blocks.sql");

pub(crate) async fn check(db: &Database, words: &[&str]) -> Said {
    let program = std::env::current_exe().unwrap();
    let artifact = ["--artifact", program.to_str().unwrap()];
    let url = ["check", "--database-url", db.url()];
    run_at(db.url(), &[&url[..], &artifact, words].concat()).await
}
