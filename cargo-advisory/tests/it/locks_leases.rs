//! Leases in `cargo advisory locks`: errors, rows that never expire, and large tables.

use advisory_pattern::Record;
use advisory_runtime::lease::{Request, Table};
use advisory_tests::Database;
use advisory_tests::leases::orphan;

use crate::live_view::{does, holder, json, locks};
use crate::programs::{Said, assert_has, assert_starts, keyed, program_of, run_at};

/// A database with the lease table.
async fn database() -> Database {
    let db = Database::create().await;
    Table::new().set_up(&mut db.connect().await).await.unwrap();
    db
}

/// Grants a lease.
async fn lease(db: &Database, pattern: &'static str, key: &str) {
    let request = Request::rendered(pattern, key.to_owned());
    orphan(db.url(), &Table::new(), request).await;
}

fn assert_error(said: &Said, why: &str) {
    assert_eq!(said.code, Some(2), "{said:?}");
    let begins = "error: cannot read the leases in `public.advisory_lease`: ";
    assert_starts(&said.err, begins);
    assert_has(&said.err, why);
    assert_has(&said.out, "1 lock");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_cannot_be_read_are_an_error() {
    let db = database().await;
    let held = holder(&db, "job", "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    locks(&db, &[]).await.exits(0);
    db.run("ALTER TABLE public.advisory_lease RENAME holder TO keeper")
        .await;
    for words in [&[][..], &["--older-than", "0s"], &["--filter", "job"]] {
        assert_error(&locks(&db, words).await, "holder");
    }
    let named = ["--lease-table", "public.advisory_lease"];
    assert_error(&locks(&db, &named).await, "holder");
    let value = json(&db, &[]).await;
    assert!(value["leases"].is_null() && value["lease_counts"].is_null());
    assert_eq!(value["locks"][0]["number"], 5);
    // A database without leases is not an error.
    db.run("DROP TABLE public.advisory_lease").await;
    locks(&db, &[]).await.fine();
    drop(held);
}

/// Such as by a migration that waits for its turn: the locks are what one wants to see then.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_lease_table_does_not_hide_the_locks() {
    let db = database().await;
    let lock = "BEGIN; LOCK TABLE public.advisory_lease; SELECT pg_advisory_xact_lock(5)";
    let held = holder(&db, "migration", lock).await;
    for words in [&[][..], &["--older-than", "0s"]] {
        assert_error(&locks(&db, words).await, "lock timeout");
    }
    for words in [&["list"][..], &["release", "report:1", "--yes"]] {
        let said = run_at(db.url(), &[&["lease"], words].concat())
            .await
            .exits(2);
        assert_has(&said.err, "lock timeout");
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_never_expires_is_shown_with_the_others() {
    let db = database().await;
    lease(&db, "report:<month>", "report:1").await;
    lease(&db, "invoice:<month>", "invoice:1").await;
    db.run(
        "UPDATE public.advisory_lease SET expires_at = 'infinity' WHERE pattern LIKE 'invoice%'",
    )
    .await;
    let said = locks(&db, &[]).await.fine();
    let line = |part: &str| {
        let mut lines = said.out.lines();
        lines.find(|line| line.contains(part)).map(str::to_owned)
    };
    assert!(line("report:<month>").is_some(), "{}", said.out);
    let forever = line("invoice:<month>").unwrap_or_default();
    assert!(forever.ends_with("forever"), "{}", said.out);
    let value = json(&db, &[]).await;
    let [first, second] = [0, 1].map(|at| &value["leases"][at]);
    assert!(first["remaining_ms"].is_number(), "{value}");
    assert_eq!(second["pattern"], "invoice:<month>");
    assert!(second["remaining_ms"].is_null() && second["expires_at_ms"].is_null());
    assert!(second["acquired_at_ms"].is_number());
}

const MANY: i64 = 10_000;

/// Adds keys that are done, with the pattern `send:<id>`. They expire in the order of their ids.
async fn add_many(db: &Database) {
    db.run(&format!(
        "INSERT INTO public.advisory_lease (key_hash, token, grant_id, pattern, holder, is_kept, acquired_at, expires_at) \
         SELECT sha256(convert_to('send:' || id, 'UTF8')), id, id, 'send:<id>', \
         CASE id WHEN {MANY} THEN 'the last one' ELSE 'a worker' END, true, now(), now() + interval '1 hour' + id * interval '1 ms' \
         FROM generate_series(1, {MANY}) AS id"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_table_of_leases_is_counted_and_not_read() {
    let db = database().await;
    add_many(&db).await;
    lease(&db, "report:<month>", "report:1").await;
    db.run("UPDATE public.advisory_lease SET expires_at = now() + interval '1 day' WHERE pattern LIKE 'report%'")
        .await;

    let said = locks(&db, &[]).await.fine();
    let more = format!("└─ and {} more ", MANY - 3);
    let lines: Vec<&str> = said.out.lines().collect();
    let found = lines.iter().position(|line| line.starts_with(&more));
    let found = found.unwrap_or_else(|| panic!("{}", said.out));
    assert!(lines[found].contains(&format!(" {} done", MANY - 3)));
    assert!(
        lines[found - 3..found]
            .iter()
            .all(|line| line.starts_with("send:<id> "))
    );
    assert_has(&said.out, "report:<month> ");
    assert!(lines.len() < 12, "{}", said.out);

    let value = json(&db, &[]).await;
    // In any number: a thousand done keys, and a thousand held leases.
    assert_eq!(value["leases"].as_array().unwrap().len(), 1_001);
    assert_eq!(
        value["lease_counts"],
        serde_json::json!([
            { "pattern": "send:<id>", "held": 0, "done": MANY },
            { "pattern": "report:<month>", "held": 1, "done": 0 },
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_finds_one_lease_in_a_large_table() {
    let db = database().await;
    add_many(&db).await;
    let found = async |words: &[&str]| {
        let value = json(&db, words).await;
        let count = &value["lease_counts"][0]["done"];
        (value["leases"].as_array().unwrap().len(), count.as_i64())
    };
    assert_eq!(found(&["--filter", "The LAST"]).await, (1, Some(1)));
    assert_eq!(found(&["--filter", "SEND:"]).await, (1_000, Some(MANY)));
    assert_eq!(found(&["--filter", "no such"]).await, (0, None));
    // The name is the program's, and is not in the table.
    let site = Record {
        name: Some("Dispatch".to_owned()),
        scope: "lease".to_owned(),
        ..keyed("mail", "send", 7, "send:<id: uint>")
    };
    let program = program_of("locks-leases.rmeta", &[site]);
    let words = ["--artifact", &program, "--filter", "dispatch: SEND"];
    assert_eq!(found(&words).await, (1_000, Some(MANY)));
    let words = ["--artifact", &program, "--filter", "mail"];
    assert_eq!(found(&words).await, (0, None));
    let mut conn = db.connect().await;
    does(
        &mut conn,
        "UPDATE public.advisory_lease SET pattern = NULL, holder = 'one' WHERE token <= 2",
    )
    .await;
    let hashes = "SELECT count(*) FROM public.advisory_lease WHERE pattern IS NULL";
    assert_eq!(db.count(hashes).await, 2);
    let said = locks(&db, &["--filter", "one"]).await;
    // The last one has this name too.
    assert_eq!(said.out.matches(" done ").count(), 3, "{}", said.out);
}
