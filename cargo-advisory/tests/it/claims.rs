//! Claims are in the inventory, and the live view shows their rows without naming a table.

use std::path::PathBuf;

use advisory_pattern::ClaimRecord;
use advisory_runtime::monitor::{self, ClaimTable, ClaimedRow};
use advisory_tests::{Database, pid_of};
use lets_server as _;
use serde_json::Value;

use crate::json_members::agrees;
use crate::live_view::{does, holder, json, locks, locks_at};
use crate::programs::{
    Said, advisory, assert_has, assert_has_all, assert_lacks, booking_service, cases, claim_record,
    file, url_as, words,
};

/// A program with this claim, in the form of its record.
fn program(name: &str, claim: &ClaimRecord) -> String {
    file(name, format!("rust{}", claim.encode()))
}

const DEFAULT: [(&str, &str); 2] = [("locked_until", "locked_until"), ("locked_by", "locked_by")];

/// The command's answer about this test's own file, which contains the application that it links.
fn own(words: &[&str]) -> Said {
    let program = std::env::current_exe().unwrap();
    advisory(&[words, &["--artifact", program.to_str().unwrap()]].concat())
}

const LETTER: &str = "lets_workers::letters::Letter";

/// The names are those in SQL, even if Rust has others. A column that the table lacks is not named.
#[test]
fn dump_has_each_derived_claim_with_its_columns() {
    let dumped = own(&["dump"]).out;
    let row = dumped.lines().find(|line| line.starts_with("outbox "));
    let row = row.unwrap_or_else(|| panic!("{dumped}"));
    let columns = "  locked_until, claimed_by (locked_by), sent_at (completed_at), failed_at, due (run_at), attempts, \
                   house (per, at most 1)  ";
    assert_has_all(&row, &[columns, "  5m  ", LETTER, "src/letters.rs:33"]);
    assert!(dumped.ends_with("; 1 claim\n"), "{dumped}");
    let value: Value = serde_json::from_str(&own(&["dump", "--format", "json"]).out).unwrap();
    let claim = &value["claims"][0];
    assert_eq!(claim["columns"][1]["argument"], "locked_by");
    assert_eq!(claim["columns"][1]["column"], "claimed_by");
    for (member, wanted) in [
        ("table", "outbox"),
        ("ttl", "5m"),
        ("limit", "1"),
        ("max_attempts", "5"),
        (
            "purpose",
            "A letter of the outbox. It is sent once for each attempt.",
        ),
    ] {
        assert_eq!(claim[member], wanted, "{claim}");
    }
    assert_eq!(claim["key"], serde_json::json!(["id"]), "{claim}");
    agrees("Claims", &["The inventory"], &[value]);
}

/// The compiler's intermediate code is in it too.
#[test]
fn a_librarys_metadata_has_each_claim_once() {
    let program = std::env::current_exe().unwrap();
    let files = program.parent().unwrap().read_dir().unwrap();
    // A library that was built: `cargo clippy` leaves metadata with other features.
    let libraries = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_metadata = path.extension().is_some_and(|it| it == "rmeta");
        name.starts_with("liblets_workers-") && is_metadata && path.with_extension("rlib").exists()
    });
    let written = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    let newest = libraries.max_by_key(written).unwrap();
    let newest = newest.to_str().unwrap();
    let said = advisory(&["dump", "--format", "json", "--artifact", newest]).exits(0);
    let library: Value = serde_json::from_str(&said.out).unwrap();
    let own: Value = serde_json::from_str(&own(&["dump", "--format", "json"]).out).unwrap();
    assert_eq!(library["claims"], own["claims"]);
}

#[test]
fn a_changed_claim_is_drift_and_a_moved_one_is_not() {
    let dumped = own(&["dump", "--format", "json"]).out;
    let check = |name: &str, text: &str| {
        let registry = file(&format!("claims-{name}.json"), text);
        own(&["check", "--registry", &registry])
    };
    let mut moved: Value = serde_json::from_str(&dumped).unwrap();
    moved["claims"][0]["line"] = 99.into();
    moved["claims"][0]["crate_version"] = "9.9.9".into();
    check("moved", &moved.to_string()).exits(0);
    // As an earlier release has written it.
    let mut earlier = moved;
    earlier.as_object_mut().unwrap().remove("claims");
    let earlier = earlier.to_string();
    for (name, text, says) in [
        (
            "changed",
            dumped.replace("\"ttl\": \"5m\"", "\"ttl\": \"1m\""),
            format!("the claim {LETTER} has changed since"),
        ),
        ("earlier", earlier, format!("lacks the claim {LETTER}")),
        (
            "gone",
            dumped.replace("\"row\": \"Letter\"", "\"row\": \"Card\""),
            "the program lacks the claim lets_workers::letters::Card".to_owned(),
        ),
    ] {
        let said = check(name, &text).exits(1);
        assert_has(&said.out, &says);
        if name == "changed" {
            assert_has(&said.out, "= + `ttl`: \"5m\"");
        }
    }
}

/// A change of each field of a claim. Some are found, because old and new workers cannot run
/// together.
#[test]
fn a_claim_that_changes_for_a_running_fleet_is_found() {
    let columns = "locked_until locked_by completed_at failed_at error_message=error run_at attempts per=tenant";
    let columns = words(columns).into_iter();
    let columns = columns.map(|name| name.split_once('=').unwrap_or((name, name)));
    let before = ClaimRecord {
        limit: Some("1".to_owned()),
        max_attempts: Some("5".to_owned()),
        ttl: Some("1m".to_owned()),
        key: vec!["id".to_owned()],
        ..claim_record("mail", &columns.collect::<Vec<_>>())
    };
    let with = |change: &dyn Fn(&mut ClaimRecord)| {
        let mut claim = before.clone();
        change(&mut claim);
        claim
    };
    let column = |argument: &str, name: &str| {
        with(&|claim| {
            claim.columns.retain(|(known, _)| known != argument);
            claim.columns.push((argument.to_owned(), name.to_owned()));
        })
    };
    let check = |name: &str, now: &ClaimRecord| {
        let old = program(&format!("claim-{name}-old.rmeta"), &before);
        let dump = advisory(&["dump", "--format", "json", "--artifact", &old]);
        let released = file(&format!("claim-{name}.json"), dump.out);
        let new = program(&format!("claim-{name}-new.rmeta"), now);
        advisory(&["check", "--artifact", &new, "--against", &released])
    };
    let differs = |now: &ClaimRecord, what: &str, happens: &str| {
        let said = check("change", now).exits(1);
        let allow = "`--allow-key-change post::Mail`";
        // The record has no file.
        let place = "--> post (struct `post::Mail`)\n";
        assert_has_all(&said.out, &[what, happens, allow, place]);
    };
    for [argument, name, what, happens] in cases(CHANGED_COLUMNS) {
        differs(
            &column(argument, name),
            &format!("its `{argument}`{what}"),
            happens,
        );
    }
    let deletes = with(&|it| {
        it.columns
            .retain(|(argument, _)| argument != "completed_at");
        it.deletes = vec!["completed_at".to_owned()];
    });
    let what = "its `completed_at` has changed from `completed_at` to the deletion of the row";
    differs(&deletes, what, "runs the rows again");
    let what = "its table has changed from `mail` to `post`";
    differs(
        &with(&|it| it.table = "post".to_owned()),
        what,
        "own table only",
    );
    let limit = with(&|it| it.limit = Some("3".to_owned()));
    let what = "its `limit` has changed from `1` to `3`";
    differs(&limit, what, "as the larger number allows");
    let order = [("priority", "DESC"), ("id", "")];
    let order = order.map(|(column, direction)| (column.to_owned(), direction.to_owned()));
    let what = "its order has changed from `run_at, id` to `priority DESC, id`";
    let migration = "`cargo advisory migration claim`";
    differs(&with(&|it| it.order = order.to_vec()), what, migration);
    let none = ClaimRecord {
        ttl: Some("9m".to_owned()),
        renew: Some("1m".to_owned()),
        max_attempts: Some("9".to_owned()),
        purpose: Some("Mails".to_owned()),
        row: "Letter".to_owned(),
        line: 9,
        ..column("error_message", "why")
    };
    check("change-none", &none).exits(0);
    let allowed = program("claim-allowed.rmeta", &column("locked_by", "by"));
    let released = crate::programs::scratch("claim-change-none.json");
    let line =
        format!("check --artifact {allowed} --against {released} --allow-key-change post::Mail");
    advisory(&words(&line)).exits(0);
}

/// The argument, its new column, and parts of the message and the note.
const CHANGED_COLUMNS: &str = "\
locked_until | until |  has changed from `locked_until` to `until` | claims rows that the other's workers are running
locked_by | by |  | can still end it
completed_at | done |  | runs the rows again that the other has completed
failed_at | gone |  | has given up
run_at | due |  | has scheduled for later
attempts | tries |  | twice as often
per | house |  has changed from `tenant` to `house` | its own column";

#[test]
fn an_inventory_without_claims_does_not_mention_them() {
    let program = booking_service();
    for format in ["text", "markdown"] {
        let said = advisory(&["dump", "--format", format, "--artifact", &program]);
        assert_lacks(&said.out.to_lowercase(), "claim");
    }
}

/// A table with a running row, one that a dead worker left, and one that nobody claims.
async fn jobs(db: &Database, table: &str) {
    db.run(&format!(
        "CREATE TABLE {table} (id int PRIMARY KEY, locked_until timestamptz, locked_by text); \
         INSERT INTO {table} VALUES (1, clock_timestamp() + interval '1 hour', 'one#u'), \
         (2, clock_timestamp() - interval '1 hour', 'dead#u'), (3, NULL, NULL)"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inventorys_claims_are_shown_without_being_named() {
    let db = Database::create().await;
    jobs(&db, "jobs").await;
    let artifact = program("claims-live.rmeta", &claim_record("schema::jobs", &DEFAULT));
    let said = locks(&db, &["--artifact", &artifact]).await.fine();
    for row in [
        ["public.jobs", "1  ", "one#u", "running"],
        ["public.jobs", "2  ", "dead#u", "expired"],
    ] {
        let has = |line: &str| row.iter().all(|part| line.contains(part));
        assert!(said.out.lines().any(has), "{row:?}: {}", said.out);
    }
    assert_has_all(
        &said.out,
        &[
            "\nexpired: not renewed in time, so its worker is dead",
            "takes the row again",
            "\nrunning: the row is free when its work ends",
        ],
    );
    // A dumped inventory has the claims too. A table that is also named is shown once.
    let dumped = advisory(&["dump", "--format", "json", "--artifact", &artifact]).out;
    let inventory = file("claims-live.json", dumped);
    for words in [
        &["--inventory", &*inventory][..],
        &["--artifact", &artifact, "--claims", "jobs"],
    ] {
        let value = json(&db, words).await;
        let rows = value["claims"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{words:?}: {rows:?}");
    }
    let older = locks(&db, &["--artifact", &artifact, "--older-than", "30m"])
        .await
        .exits(1);
    assert_lacks(&older.out, "one#u");
}

/// A time without a zone is in UTC, whatever zone the session has; a holder can be a UUID.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_read_by_the_columns_of_their_claim() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE mail (id int PRIMARY KEY, lease_until timestamp, token uuid, sent_at timestamptz); \
         INSERT INTO mail SELECT id, timezone('UTC', clock_timestamp()) + make_interval(mins => away), \
         gen_random_uuid(), sent_at FROM (VALUES (1, 1, NULL), (2, -1, NULL), (3, -1, now())) AS row (id, away, sent_at)",
    )
    .await;
    let columns = [
        ("locked_until", "lease_until"),
        ("locked_by", "token"),
        ("completed_at", "sent_at"),
    ];
    let artifact = program("claims-columns.rmeta", &claim_record("mail", &columns));
    let table = ClaimTable::of("mail", &claim_record("mail", &columns));
    let mut conn = db.connect().await;
    does(&mut conn, "SET TimeZone = 'Asia/Tokyo'").await;
    let rows = monitor::claimed_rows(&mut conn, table).await.unwrap();
    let left = |row: &ClaimedRow| (row.expired.as_secs() / 60, row.remaining.as_secs() / 60);
    let left: Vec<_> = rows.iter().map(left).collect();
    assert_eq!(left, [(1, 0), (0, 0)], "{rows:?}");
    let value = json(&db, &["--artifact", &artifact]).await;
    let [expired, running] = &value["claims"].as_array().unwrap()[..] else {
        panic!("{value}")
    };
    assert_eq!(
        (&expired["row"], &running["row"]),
        (&"2".into(), &"1".into())
    );
    for time in [&expired["expired_ms_ago"], &running["remaining_ms"]] {
        assert!((1..=120_000).contains(&time.as_u64().unwrap()), "{value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_a_claim_is_found_in_its_schema() {
    let db = Database::create().await;
    db.run("CREATE SCHEMA shop; CREATE SCHEMA other; CREATE TABLE jobs (id int)")
        .await;
    let artifact = program("claims-schema.rmeta", &claim_record("jobs", &DEFAULT));
    let words = ["--artifact", &artifact];
    let said = locks(&db, &words).await.exits(0);
    let why = "claims on `jobs` are not shown: this database has no table of that name with their columns";
    assert_has(&said.out, why);
    // An alert must not take silence for an answer.
    let older = locks(&db, &["--artifact", &artifact, "--older-than", "30m"])
        .await
        .exits(2);
    assert_has(&older.err, why);
    assert_eq!(json(&db, &words).await["unfound_claims"][0], "jobs");
    jobs(&db, "shop.jobs").await;
    locks(&db, &["--artifact", &artifact, "--older-than", "30m"])
        .await
        .exits(1);
    let said = locks(&db, &words).await;
    assert_has(&said.out, "\nshop.jobs ");
    jobs(&db, "other.jobs").await;
    let said = locks(&db, &words).await;
    let why = "several schemas have that table; `--claims SCHEMA.jobs` shows them";
    assert_has(&said.out, why);
    let said = locks(&db, &["--artifact", &artifact, "--claims", "other.jobs"]).await;
    assert_has(&said.out, "\nother.jobs ");
    assert_lacks(&said.out, "several schemas");
    // The program uses the table on the search path.
    db.run("DROP TABLE public.jobs").await;
    jobs(&db, "public.jobs").await;
    let said = locks(&db, &words).await;
    assert_has(&said.out, "\npublic.jobs ");
    assert_lacks(&said.out, "other.jobs");
    let others = "claims on `public.jobs` are those that the search path finds: \
                  2 other schemas have that table, and `--claims SCHEMA.jobs` shows theirs";
    assert_has(&said.out, others);
}

/// A schema's name can have a dot.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_with_a_dot_is_one_name() {
    let db = Database::create().await;
    db.run("CREATE SCHEMA \"a.b\"").await;
    jobs(&db, "\"a.b\".jobs").await;
    let artifact = program("claims-dot.rmeta", &claim_record("jobs", &DEFAULT));
    let said = locks(&db, &["--artifact", &artifact]).await;
    assert_has(&said.out, "\na.b.jobs ");
}

/// Each row of a table with two types of row is shown once. Two tables with one name have their own
/// columns.
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_one_name_are_distinguished_by_their_columns() {
    let db = Database::create().await;
    jobs(&db, "jobs").await;
    db.run(
        "ALTER TABLE jobs ADD done timestamptz; CREATE SCHEMA shop; \
         CREATE TABLE shop.jobs (id int PRIMARY KEY, until timestamptz, by text); \
         INSERT INTO shop.jobs VALUES (7, clock_timestamp() + interval '1 hour', 'shop#u')",
    )
    .await;
    let ends = [&DEFAULT[..], &[("completed_at", "done")]].concat();
    let shop = [("locked_until", "until"), ("locked_by", "by")];
    let claims = [&DEFAULT[..], &ends, &shop].map(|columns| claim_record("jobs", columns).encode());
    let artifact = file("claims-apart.rmeta", format!("rust{}", claims.concat()));
    let shown = async |words: &[&str]| {
        let value = json(&db, &[&["--artifact", &artifact], words].concat()).await;
        let rows = value["claims"].as_array().unwrap().iter();
        let rows = rows.map(|row| format!("{} {}", row["table"], row["row"]).replace('"', ""));
        rows.collect::<Vec<_>>()
    };
    let own = ["public.jobs 2", "public.jobs 1", "shop.jobs 7"];
    assert_eq!(shown(&[]).await, own);
    for (table, rows) in [
        ("shop.jobs", &["shop.jobs 7"][..]),
        ("jobs", &["jobs 2", "jobs 1"]),
    ] {
        assert_eq!(shown(&["--claims", table]).await, rows);
    }
}

/// The command that shows who holds a lock must not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_table_of_claims_hides_no_locks() {
    let db = Database::create().await;
    jobs(&db, "jobs").await;
    let lock = "BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE; SELECT pg_advisory_xact_lock(5)";
    let mut migration = holder(&db, "migration", lock).await;
    let pid = pid_of(&mut migration).await.to_string();
    let artifact = program("claims-locked.rmeta", &claim_record("jobs", &DEFAULT));
    for words in [
        &["--artifact", &*artifact][..],
        &["--claims", "public.jobs"],
    ] {
        let said = locks(&db, words).await.exits(2);
        assert_has(&said.out, "migration (");
        assert_has(&said.out, "1 lock, 0 waiters");
        let why = "cannot read the claims on `public.jobs`: ";
        assert_has(&said.err, why);
        assert_has(&said.err, "due to lock timeout");
    }
    locks(&db, &["terminate", &pid, "--yes", "--artifact", &artifact])
        .await
        .exits(0);
    let said = locks(&db, &["--artifact", &artifact]).await.exits(0);
    assert_has(&said.out, "dead#u");
}

/// The rest is shown, and an alert must not take silence for an answer.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_cannot_be_read_are_a_failure() {
    let db = Database::create().await;
    jobs(&db, "jobs").await;
    db.run("DROP ROLE IF EXISTS claims_reader; CREATE ROLE claims_reader LOGIN")
        .await;
    let url = url_as(&db, "claims_reader");
    let artifact = program("claims-unread.rmeta", &claim_record("jobs", &DEFAULT));
    let said = locks_at(&url, &["--artifact", &artifact]).await.exits(2);
    assert_has(&said.out, "no advisory locks in database");
    let why = "cannot read the claims on `public.jobs`: ";
    assert_has(&said.err, why);
    db.run("DROP ROLE claims_reader").await;
}
