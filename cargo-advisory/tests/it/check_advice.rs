//! `check --database-url` says where a constraint could say a lock's rule, and where an index is missing.

use advisory_tests::Database;
use serde_json::Value;

use crate::guard_check::{BLOCKS, GUARD, check};

/// The advice on the guarded table, whose lock has the key `night:<room>:<night>`.
async fn advice(db: &Database, words: &[&str]) -> Option<(String, Vec<String>)> {
    let said = check(db, &[words, &["--format", "json"]].concat()).await;
    assert_eq!(said.code, Some(0), "advice is not a failure: {said:?}");
    let value: Value = serde_json::from_str(&said.out).unwrap();
    let findings = value["findings"].as_array().unwrap();
    let one = findings.first()?;
    assert_eq!(
        (findings.len(), &one["kind"]),
        (1, &"advice".into()),
        "{value:#}"
    );
    let notes = one["notes"].as_array().unwrap().iter();
    let notes = notes
        .map(|note| note.as_str().unwrap().to_owned())
        .collect();
    Some((one["message"].as_str().unwrap().to_owned(), notes))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constraint_that_could_say_the_rule_is_advised() {
    let db = Database::create().await;
    db.run(&format!("{BLOCKS};{GUARD}")).await;
    let (message, notes) = advice(&db, &[]).await.unwrap();
    assert!(
        message.contains("has no index on the columns of the advisory lock `room-night`"),
        "{message}"
    );
    assert_eq!(
        notes[1],
        "CREATE INDEX CONCURRENTLY ON public.blocks (room_id, night);"
    );
    db.run("ALTER TABLE blocks DISABLE TRIGGER ALL; INSERT INTO blocks VALUES (1, 1, '2026-11-22'), (1, 1, '2026-11-23'); \
            ALTER TABLE blocks ENABLE TRIGGER ALL").await;
    let (message, notes) = advice(&db, &[]).await.unwrap();
    assert!(
        message.contains("no two of the 2 rows of `public.blocks` have the same (room_id, night)"),
        "{message}"
    );
    // The statement does it.
    let [statement] = &notes[..] else {
        panic!("{notes:?}")
    };
    assert_eq!(
        statement,
        "CREATE UNIQUE INDEX CONCURRENTLY ON public.blocks (room_id, night);"
    );
    db.run(statement).await;
    let (message, _) = advice(&db, &[]).await.unwrap();
    assert!(
        message.contains("the unique index `blocks_room_id_night_idx` already allows one row"),
        "{message}"
    );
    // A lock that is needed all the same has a reason.
    let kept = ["--keep-lock", "room-night=it also guards the calendar"];
    assert_eq!(advice(&db, &kept).await, None);
    let said = check(&db, &["--keep-lock", "room-night"]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("has no reason"), "{}", said.err);
    let said = check(&db, &[]).await;
    for part in [
        "\nadvice: ",
        "ON CONFLICT DO NOTHING",
        "ok: nothing found but advice; ",
    ] {
        assert!(
            format!("\n{}", said.out).contains(part),
            "{part}: {}",
            said.out
        );
    }
    // Two rows of one key: the rule is another, and an index is there or not.
    db.run(
        "DROP INDEX blocks_room_id_night_idx; ALTER TABLE blocks DISABLE TRIGGER ALL; \
            INSERT INTO blocks VALUES (1, 2, '2026-11-22'); ALTER TABLE blocks ENABLE TRIGGER ALL",
    )
    .await;
    let (message, _) = advice(&db, &[]).await.unwrap();
    assert!(message.contains("has no index"), "{message}");
    db.run("CREATE INDEX ON blocks (night, room_id)").await;
    assert_eq!(advice(&db, &[]).await, None);
    db.run("ALTER TABLE blocks ADD CONSTRAINT one_night EXCLUDE USING btree (room_id WITH =, night WITH =, other_room WITH =)").await;
    let (message, _) = advice(&db, &[]).await.unwrap();
    assert!(
        message.contains("the exclusion constraint `one_night` already says a rule"),
        "{message}"
    );
}
