//! `claim` shows the rows of a queue by state, and runs, ends, frees and deletes them.

use advisory_pattern::ClaimRecord;
use advisory_tests::Database;
use serde_json::Value;

use crate::programs::{
    Said, assert_has, assert_has_all, assert_lacks, assert_starts, cases, claim_record, file,
    run_at, url_as, words,
};

/// A queue with rows in every state.
async fn queue(table: &str) -> Database {
    let db = Database::create().await;
    db.run(&format!(
        "CREATE SCHEMA shop; CREATE TABLE {table} (id int8 PRIMARY KEY, kind text NOT NULL DEFAULT 'mail', \
         run_at timestamptz NOT NULL DEFAULT now(), attempts int4 NOT NULL DEFAULT 0, locked_until timestamptz, locked_by text, \
         completed_at timestamptz, failed_at timestamptz, error_message text);
         INSERT INTO {table} (id, run_at) VALUES (1, now() - interval '3 minutes'), (2, now());
         INSERT INTO {table} (id, run_at, attempts, error_message) VALUES (3, now() + interval '5 minutes 30 seconds', 2, 'timed out');
         INSERT INTO {table} (id, attempts, locked_until, locked_by) VALUES (4, 1, now() + interval '40 seconds', 'w1#a'),
             (5, 1, now() + interval '50 seconds', 'w1#b'), (6, 3, now() - interval '2 minutes', 'w2#c'), (7, 1, 'infinity', 'w3#d');
         INSERT INTO {table} (id, kind, attempts, failed_at, error_message) VALUES
             (8, 'mail', 5, now() - interval '50 hours', 'connection refused (os error 111)'),
             (9, 'mail', 5, now() - interval '1 hour', 'connection refused (os error 111)'),
             (10, 'sms', 5, now() - interval '4 hours', 'no such number'||chr(27)||'[2J');
         INSERT INTO {table} (id, completed_at) SELECT n, now() - n * interval '1 hour' FROM generate_series(11, 40) AS n"
    ))
    .await;
    db
}

async fn claim(db: &Database, line: &str) -> Said {
    run_at(db.url(), &words(&format!("claim {line}"))).await
}

async fn list(db: &Database, line: &str) -> Value {
    let said = claim(db, &format!("list --format json {line}")).await;
    let value: Value = serde_json::from_str(&said.fine().out).unwrap();
    value["queues"][0].clone()
}

/// The states with their numbers of rows: `available 2`.
async fn states(db: &Database, line: &str) -> Vec<String> {
    let queue = list(db, line).await;
    let states = queue["states"].as_array().unwrap().iter();
    let text = |state: &Value| format!("{} {}", state["state"].as_str().unwrap(), state["rows"]);
    states.map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_says_who_does_what_since_when_and_what_fails() {
    let db = queue("mail").await;
    let said = claim(&db, "list --table mail").await.fine();
    let expected = "\
mail
STATE      ROWS  OLDEST     ATTEMPTS  BY
available  2     3m00s      0
scheduled  1     in 5m29s   2
running    3     39s left   1         w1 (2), w3 (1)
expired    1     2m00s ago  3         w2 (1)
failed     3     2d02h ago  5
done       30    1d16h ago

ROWS  STATE      FIRST      LAST       ERROR
2     failed     2d02h ago  1h00m ago  connection refused (os error 111)
1     failed     4h00m ago  4h00m ago  no such number [2J
1     scheduled                        timed out

run them again:
    cargo advisory claim retry --table mail --error 'connection refused (os error 111)'
";
    // A second can have passed.
    let settled = |text: &str| {
        text.replace("5m28s", "5m29s")
            .replace("38s left", "39s left")
            .replace("3m01s", "3m00s")
            .replace("2m01s", "2m00s")
    };
    assert_eq!(settled(&said.out), expected);
    let said = claim(&db, "list --table mail --state failed --where kind=mail").await;
    let errors = "2     failed     2d02h ago  1h00m ago  connection refused (os error 111)";
    assert_has(&said.out, errors);
    assert_has_all(
        &said.out,
        &[
            "8    failed  2d02h ago  5         connection",
            "9    failed  1h00m ago  5",
        ],
    );
    assert_lacks(&said.out, "no such number");
    let queue = list(&db, "--table mail --state expired").await;
    assert_eq!(queue["rows"][0]["key"], "6");
    assert_eq!(queue["rows"][0]["worker"], "w2");
    let said = claim(&db, "show 10 --table mail").await;
    for part in [
        "10: failed, 4h00m ago\n",
        "    kind           sms\n",
        "no such number [2J",
        "claim retry --table mail 10\n",
    ] {
        assert_has(&said.out, part);
    }
    let said = claim(&db, "show 99 --table mail").await.exits(1);
    assert_eq!(
        said.out,
        "`mail` has no row `99`: it was deleted, or never there\n"
    );
}

/// Errors can have private data.
#[tokio::test(flavor = "multi_thread")]
async fn counts_need_no_right_to_the_key_and_the_errors() {
    let db = queue("shop.mail").await;
    let role = format!("watching_{}", std::process::id());
    db.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA shop TO {role};
         GRANT SELECT (kind, run_at, attempts, locked_until, locked_by, completed_at, failed_at) ON shop.mail TO {role}"
    ))
    .await;
    let list = words("claim list --table shop.mail");
    let said = run_at(&url_as(&db, &role), &list).await.exits(0);
    assert_has_all(&said.out, &["available", "failed"]);
    assert_has(&said.out, "not known: errors: ");
    assert_eq!(said.out.matches("not known").count(), 1, "{}", said.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_run_again_ended_and_freed_only_if_they_are_in_the_right_state() {
    let db = queue("shop.mail").await;
    let change = async |line: &str| {
        let line = format!("{line} --table shop.mail --yes");
        claim(&db, &line).await
    };
    let states = async || states(&db, "--table shop.mail").await;
    let has = |states: &[String], state: &str| states.iter().any(|it| it == state);
    let said = change("retry --error refused").await.exits(0);
    assert_eq!(said.err, "2 failed rows of `shop.mail`\n");
    assert_eq!(
        said.out,
        "2 failed rows of `shop.mail`: can be claimed again\n"
    );
    let fresh = "SELECT count(*) FROM shop.mail WHERE id IN (8, 9) AND failed_at IS NULL AND attempts = 0 AND error_message IS NULL \
                 AND run_at > now() - interval '1 minute'";
    assert_eq!(db.count(fresh).await, 2);
    // One that waits for its backoff, and one that is done.
    change("retry 3").await.exits(0);
    let said = change("retry 20").await.exits(1);
    assert_eq!(
        said.out,
        "`shop.mail` has no such row that is failed or scheduled: nothing was changed\n"
    );
    let said = change("cancel 1 4").await;
    assert_has(&said.err, "a worker that runs one of them loses it");
    assert_eq!(said.code, Some(0), "{said:?}");
    let cancelled = "SELECT count(*) FROM shop.mail WHERE id IN (1, 4) AND failed_at IS NOT NULL AND locked_by IS NULL \
                     AND locked_until IS NULL AND error_message LIKE 'cancelled by %'";
    assert_eq!(db.count(cancelled).await, 2);
    // Only the row of the dead worker.
    change("release --all").await.exits(0);
    let now = states().await;
    let none = now.iter().all(|it| !it.starts_with("expired"));
    assert!(none && has(&now, "running 2"), "{now:?}");
    change("release 5").await.exits(0);
    assert!(has(&states().await, "running 1"));
    change("cancel --all --where kind=sms").await.exits(1);
    // The server says why, and nothing is changed.
    db.run("ALTER TABLE shop.mail ADD CHECK (failed_at IS NULL OR kind <> 'mail') NOT VALID")
        .await;
    let said = change("cancel 2").await.exits(2);
    assert_has(&said.err, "nothing was changed: ");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_ended_long_ago_are_deleted_and_no_others() {
    let db = queue("mail").await;
    db.run("INSERT INTO mail (id, completed_at) SELECT n, now() - interval '3 days' FROM generate_series(1001, 3500) AS n").await;
    let said = claim(&db, "prune --table mail --older-than 2d --yes")
        .await
        .exits(0);
    assert_eq!(said.out, "2500 done rows of `mail`: deleted\n");
    claim(
        &db,
        "prune --table mail --older-than 2d --state failed --yes",
    )
    .await
    .exits(0);
    assert_eq!(db.count("SELECT count(*) FROM mail").await, 39);
    claim(&db, "prune --table mail --older-than 2d --yes")
        .await
        .exits(1);
}

const WRONG: &str = "\
retry --all --table mail | write `--yes`
prune --older-than 1h --table mail | write `--yes`
list | no table: write `--table mail`
list --table mails | there is no table `mails`
list --table schema::mail | there is no table `schema::mail`
list --table mail --locked-by worker | has no column `worker`: write `--locked-by COLUMN`
list --table mail --where kinds=a | `mail` has no column `kinds`
list --table mail --where kind | write `--where COLUMN=VALUE`
show x --table mail | invalid input syntax for type bigint
prune --older-than 1h --state running --table mail | write `done` or `failed`
cancel 1 --table mail --failed-at none | so none can be cancelled";

/// A command that reads changes nothing, and one that changes rows asks first.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_without_an_answer_or_with_wrong_words() {
    let db = queue("mail").await;
    let before = states(&db, "--table mail").await;
    for [line, why] in cases(WRONG) {
        let said = claim(&db, line).await.exits(2);
        assert_eq!(said.out, "");
        assert_has(&said.err, why);
    }
    assert_eq!(states(&db, "--table mail").await, before);
}

/// Other names, two columns in the key, times without a zone, and the inventory instead of options.
#[tokio::test(flavor = "multi_thread")]
async fn the_columns_are_those_of_the_programs_claim() {
    let db = Database::create().await;
    db.run(
        "SET TimeZone = 'Asia/Kolkata'; CREATE TABLE letters (house text, id int4, due timestamp, tries int2 DEFAULT 0, \"taken until\" timestamp, taken_by uuid, \
         sent timestamp, PRIMARY KEY (house, id));
         INSERT INTO letters VALUES ('a', 1, now() AT TIME ZONE 'UTC' + interval '10 minutes'), ('a', 2, now() AT TIME ZONE 'UTC' - interval '10 minutes');
         INSERT INTO letters (house, id, \"taken until\", taken_by) VALUES ('b', 1, now() AT TIME ZONE 'UTC' - interval '1 minute', gen_random_uuid())",
    )
    .await;
    let columns = [
        ("locked_until", "taken until"),
        ("locked_by", "taken_by"),
        ("completed_at", "sent"),
        ("run_at", "due"),
        ("attempts", "tries"),
    ];
    let record = ClaimRecord {
        key: vec!["house".to_owned(), "id".to_owned()],
        row: "Letter".to_owned(),
        ..claim_record("schema::letters", &columns)
    };
    let program = file("claim-command.rmeta", format!("rust{}", record.encode()));
    let said = async |line: &str| claim(&db, &format!("{line} --artifact {program}")).await;
    let found = states(&db, &format!("--artifact {program}")).await;
    assert_eq!(found, ["available 1", "scheduled 1", "expired 1"]);
    said("release b,1 --yes").await.exits(0);
    assert_starts(&said("show b,1").await.out, "b,1: available");
    let why = "write its columns `house,id` with commas between them";
    assert_has(&said("show b").await.err, why);
}
