//! `migration claim` prints what each form of a claim uses: the indexes of `claim::indexes`, and
//! its own columns.
//!
//! A binary of its own, because `it` compares its own claims with an inventory.
#![allow(missing_docs, reason = "the tables of `diesel::table!`")]
#![expect(
    clippy::unwrap_used,
    reason = "the functions that tests share fail the test too"
)]

use std::process::{Command, Output};

use advisory_runtime::claim;
use advisory_tests::Database;
use diesel::prelude::*;

diesel::table! {
    plain (id) {
        id -> BigInt,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

diesel::table! {
    queued (id) {
        id -> BigInt,
        run_at -> Timestamptz,
        attempts -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

diesel::table! {
    deleted (id) {
        id -> BigInt,
        run_at -> Timestamptz,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        failed_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    orders (house, id) {
        house -> Text,
        id -> BigInt,
        priority -> Nullable<Integer>,
        #[sql_name = "due at"]
        due -> Nullable<Timestamp>,
        #[sql_name = "taken until"]
        until -> Nullable<Timestamp>,
        taken_by -> Nullable<Text>,
        done_at -> Nullable<Timestamp>,
        tries -> SmallInt,
    }
}

#[derive(Queryable, Selectable, claim::Claim)]
#[diesel(table_name = plain)]
struct Plain {
    id: i64,
}

#[derive(Queryable, Selectable, claim::Claim)]
#[diesel(table_name = queued)]
#[claim(run_at, attempts, max_attempts = 5)]
struct Queued {
    id: i64,
}

#[derive(Queryable, Selectable, claim::Claim)]
#[diesel(table_name = deleted)]
#[claim(run_at, completed_at = "delete", failed_at = "none")]
struct Deleted {
    id: i64,
}

#[derive(Queryable, Selectable, claim::Claim)]
#[diesel(table_name = orders)]
#[claim(
    key = (house, id),
    order = "priority desc nulls last, due nulls first, id",
    run_at = due,
    attempts = tries,
    locked_until = until,
    locked_by = taken_by,
    completed_at = done_at,
    per = "house",
    limit = 2
)]
struct Order {
    house: String,
    id: i64,
}

/// The command about this binary, which has the records of the claims above.
fn printed(words: &[&str]) -> Output {
    let own = std::env::current_exe().unwrap();
    Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
        .args(["advisory", "migration", "claim", "--artifact"])
        .arg(own)
        .args(words)
        .output()
        .unwrap()
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn agrees<T: claim::Claim>(table: &str) -> String {
    let sql = text(printed(&["--table", table]));
    let indexes = sql.lines().filter(|line| line.starts_with("CREATE INDEX"));
    assert_eq!(
        indexes.collect::<Vec<&str>>(),
        claim::indexes::<T>(),
        "{sql}"
    );
    sql
}

#[test]
fn the_indexes_of_every_form_of_a_claim_are_those_of_the_runtime() {
    agrees::<Plain>("plain");
    agrees::<Queued>("queued");
    let sql = agrees::<Deleted>("deleted");
    assert!(
        !sql.contains("completed_at") && !sql.contains("failed_at"),
        "{sql}"
    );
    agrees::<Order>("orders");
    let all = text(printed(&[]));
    for table in ["\"plain\"", "\"queued\"", "\"deleted\"", "\"orders\""] {
        assert!(
            all.contains(&format!("ALTER TABLE {table}\n")),
            "{table}: {all}"
        );
    }
    for part in [
        "ADD COLUMN IF NOT EXISTS \"due at\" timestamptz NOT NULL DEFAULT now()",
        "ADD COLUMN IF NOT EXISTS \"tries\" integer",
        "AFTER UPDATE OF \"taken_by\" ON \"orders\"",
        "WHEN (OLD.\"taken_by\" IS NOT NULL)",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
}

/// The same columns, as options.
#[test]
fn a_claim_that_is_named_by_options_has_the_indexes_of_the_program() {
    let command = |line: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
            .args(["advisory", "migration", "claim"])
            .args(line.split('|'))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let indexes = |line: &str| {
        let (code, out, err) = command(line);
        assert_eq!(code, Some(0), "{err}");
        let lines = out.lines().filter(|line| line.starts_with("CREATE INDEX"));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let none = "--table|plain|--run-at|none|--completed-at|none|--failed-at|none";
    assert_eq!(indexes(none), claim::indexes::<Plain>());
    assert_eq!(indexes("--table|queued"), claim::indexes::<Queued>());
    let deleted = "--table|deleted|--completed-at|delete|--failed-at|none";
    assert_eq!(indexes(deleted), claim::indexes::<Deleted>());
    let wrong = "\
--table|mail|--order|id downwards => `--order` cannot contain `id downwards`
--table|mail|--locked-by|none => `--locked-by` cannot be `none`
--table|mail|--failed-at|delete => `--failed-at` cannot be `delete`
--per|tenant|--artifact|x => name the table, `--table mail`";
    for line in wrong.lines() {
        let (line, why) = line.split_once(" => ").unwrap();
        let (code, out, err) = command(line);
        assert_eq!((code, &*out), (Some(2), ""), "{line}");
        let is_said = err.contains(why) && err.lines().count() == 1;
        assert!(is_said, "{why}: {err}");
    }
    let output = printed(&["--table", "mail"]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(
        err.contains("the program claims no rows of `mail`: it claims "),
        "{err}"
    );
}

/// A row that comes in, one that is released, and the columns of the claim alone.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_for_a_claim_that_deletes_runs_up_and_down() {
    let db = Database::create().await;
    db.run("CREATE TABLE deleted (id int8 PRIMARY KEY)").await;
    let (up, down) = (
        text(printed(&["--table", "deleted"])),
        text(printed(&["--table", "deleted", "--down"])),
    );
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'deleted'::regclass AND attnum > 0 AND NOT attisdropped";
    for _ in 0..2 {
        db.run(&up).await;
        assert_eq!(db.count(columns).await, 4);
        db.run("INSERT INTO deleted (id) VALUES (1); DELETE FROM deleted")
            .await;
        db.run(&down).await;
        assert_eq!(db.count(columns).await, 1);
    }
}

/// An insert into a partition runs the triggers of its parent for rows only.
#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_table_notifies_of_each_row() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE queued (id int8, PRIMARY KEY (id)) PARTITION BY RANGE (id);
         CREATE TABLE low PARTITION OF queued FOR VALUES FROM (0) TO (100)",
    )
    .await;
    let [up, down] = [&["--table", "queued"][..], &["--table", "queued", "--down"]]
        .map(|words| text(printed(words)));
    db.run(&up).await;
    let fired = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'low'::regclass AND tgname = 'advisory_claim_inserted'";
    assert_eq!(db.count(fired).await, 1, "the partition has the trigger");
    db.run("INSERT INTO low (id) VALUES (1)").await;
    db.run(&down).await;
    assert_eq!(db.count(fired).await, 0);
}
