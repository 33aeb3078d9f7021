//! A lock that a program left on a session of a pooler, which the command itself uses too.

use advisory_tests::futures::spawn;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use advisory_tests::{Database, pid_of};
use diesel::dsl::{select, sql};
use diesel::sql_types::{Integer, Nullable};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use serde_json::Value;

use crate::diagnosis::{findings, level, message};
use crate::live_view::{does, holder as holds, json, locks, locks_at};
use crate::programs::{
    Said, assert_has, assert_has_all, assert_lacks, assert_lacks_all, assert_starts, pooler, run_at,
};

/// Leaves a session-level lock on a pooler's session, and returns the process id of its backend.
async fn leave_lock(db: &Database, pooled: &str) -> i32 {
    let mut conn = AsyncPgConnection::establish(pooled).await.unwrap();
    let acquire = "SET application_name = 'job'; SELECT pg_advisory_lock(7)";
    does(&mut conn, acquire).await;
    drop(conn);
    holder(db).await.unwrap()
}

/// The backend that holds the lock.
async fn holder(db: &Database) -> Option<i32> {
    let holder = "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 \
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    let mut conn = db.connect().await;
    let pid = select(sql::<Nullable<Integer>>(holder));
    pid.get_result(&mut conn).await.unwrap()
}

/// The row of the lock is shown, and nothing that the command itself has sent.
fn shows_lock_only(said: &Said, pid: i32) {
    assert_eq!((said.code, &*said.err), (Some(0), ""));
    let row = said.out.lines().find(|line| line.starts_with("7 "));
    let row = row.unwrap_or_else(|| panic!("{}", said.out));
    assert_has(&row, &format!("  {pid}  session  "));
    assert_lacks_all(&row, &["cargo-advisory", "SELECT", "active"]);
    let note = format!("{pid} is a session of a pooler");
    assert_has(&said.out, &note);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_session_is_not_shown_as_the_command() {
    for settings in [
        "pool_mode = transaction",
        "pool_mode = transaction\napplication_name_add_host = 1",
        // The session does not name its client.
        "pool_mode = transaction\nignore_startup_parameters = application_name",
    ] {
        let db = Database::create().await;
        let bouncer = pooler!(&db, settings);
        let pooled = bouncer.url(&db);
        let mut pid = 0;
        for _ in 0..20 {
            pid = leave_lock(&db, &pooled).await;
            shows_lock_only(&locks_at(&pooled, &[]).await, pid);
            // pgbouncer closes the session of a client that leaves before its last message is
            // answered.
            if holder(&db).await == Some(pid) {
                break;
            }
        }
        shows_lock_only(&locks(&db, &[]).await, pid);
        let value = json(&db, &[]).await;
        assert_eq!(value["locks"][0]["holders"][0]["scope"], "session");
        let backend = &value["backends"][0];
        assert_eq!(backend["pid"], pid);
        assert_eq!(backend["application"], "");
        assert_eq!(backend["query"], "");
        assert_eq!(backend["state"], "idle");
        let said = locks(&db, &["--filter", "cargo-advisory"]).await;
        assert_starts(&said.out, "no advisory locks");
        let ended = locks(&db, &["terminate", "--yes", &pid.to_string()]).await;
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_lacks(&ended.err, "cargo-advisory");
        db.until_no_locks().await;
    }
}

/// It acquires nothing, so its last statement asks for no lock, and it is not among the tries.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_shows_nothing_of_the_runs_before_it() {
    let db = Database::create().await;
    let bouncer = pooler!(&db, "pool_mode = transaction");
    let mut conn = db.connect().await;
    does(&mut conn, "SELECT pg_advisory_lock(7)").await;
    let pooled = bouncer.url(&db);
    // The pooler accepts no `search_path`, and this one is the default.
    let sign = if pooled.contains('?') { '&' } else { '?' };
    let default = format!("{pooled}{sign}schema=public");
    for url in [&pooled, db.url(), &default] {
        let said = locks_at(url, &["--format", "json"]).await;
        let value: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(value["backends"].as_array().unwrap().len(), 1, "{value}");
        assert_eq!(value["locks"][0]["tries"], serde_json::json!([]));
    }
    drop(conn);
}

/// The pooler's session outlives the command, and shows its last statement to everybody.
#[tokio::test(flavor = "multi_thread")]
async fn watching_leaves_no_statement_behind() {
    let db = Database::create().await;
    let bouncer = pooler!(&db, "pool_mode = transaction");
    let mut watching = Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
        .args(["locks", "--watch", "--format=json", "--interval", "1h"])
        .env("DATABASE_URL", bouncer.url(&db))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'cargo-advisory%' \
         AND datname = current_database()";
    assert_eq!(db.count(sessions).await, 1);
    let pid = watching.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    assert_eq!(db.count(&format!("{sessions} AND query <> ''")).await, 0);
}

/// The pooler's one session is in use. It would answer after `query_wait_timeout`, two minutes.
#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pooler_is_named_at_once() {
    let db = Database::create().await;
    let settings = "pool_mode = transaction\ndefault_pool_size = 1";
    let bouncer = pooler!(&db, settings);
    let pooled = bouncer.url(&db);
    let mut conn = AsyncPgConnection::establish(&pooled).await.unwrap();
    does(&mut conn, "BEGIN; SELECT pg_advisory_xact_lock(7)").await;
    for words in [&["locks"][..], &["doctor"], &["lease", "list"]] {
        let since = Instant::now();
        let said = run_at(&pooled, words).await.exits(2);
        assert_eq!(said.out, "");
        assert_has_all(
            &said.err,
            &[
                "error: the pooler in front of ",
                "gives no connection",
                "Connect to the server itself",
            ],
        );
        // Two seconds, and what a busy machine adds.
        assert!(
            since.elapsed() < Duration::from_secs(6),
            "{:?}",
            since.elapsed()
        );
    }
    assert_eq!(
        locks(&db, &[]).await.code,
        Some(0),
        "the server's own address works"
    );
    drop(conn);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poolers_waiter_is_marked() {
    let db = Database::create().await;
    let settings = "pool_mode = transaction\napplication_name_add_host = 1";
    let bouncer = pooler!(&db, settings);
    let mut direct = holds(&db, "job", "SELECT pg_advisory_lock(7)").await;
    let holder = pid_of(&mut direct).await;
    let url = bouncer.url(&db);
    let joined = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{joined}application_name=web");
    let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
    let waiting = spawn(async move {
        does(&mut conn, "BEGIN; SELECT pg_advisory_xact_lock(7); COMMIT").await;
    });
    db.until_waiting(7).await;
    let out = locks(&db, &[]).await.out;
    let line = |start: &str| out.lines().find(|line| line.starts_with(start)).unwrap();
    assert_has(&line("└─ waits "), "active, pooled");
    assert_lacks(&line("7 "), "pooled");
    assert_has(&out, "pooled: the session of a pooler");
    let value = json(&db, &[]).await;
    for backend in value["backends"].as_array().unwrap() {
        assert_eq!(backend["is_pooled"], backend["pid"] != holder, "{value}");
    }
    drop(direct);
    waiting.await.unwrap();
    // Without an address in the name, the role says it.
    let role = format!("pooled_{}", std::process::id());
    db.run(&format!(
        "CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET advisory.pooler = 'transaction'"
    ))
    .await;
    let (scheme, address) = db.url().split_once("://").unwrap();
    let address = address.rsplit_once('@').map_or(address, |(_, host)| host);
    let mut conn = AsyncPgConnection::establish(&format!("{scheme}://{role}@{address}"))
        .await
        .unwrap();
    does(&mut conn, "SELECT pg_advisory_lock(8)").await;
    let value = json(&db, &[]).await;
    assert_eq!(value["backends"][0]["is_pooled"], true, "{value}");
    let found = findings(db.url(), &[]).await;
    assert_eq!(level(&found, "stranded_locks"), "problem");
    drop(conn);
    db.until_no_locks().await;
    db.run(&format!("DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranded_lock_is_found_and_the_shown_command_frees_it() {
    let db = Database::create().await;
    let bouncer = pooler!(&db, "pool_mode = transaction");
    let pooled = bouncer.url(&db);
    assert_eq!(
        level(&findings(&pooled, &[]).await, "stranded_locks"),
        "fine"
    );
    let mut pid = 0;
    for _ in 0..20 {
        pid = leave_lock(&db, &pooled).await;
        if holder(&db).await == Some(pid) {
            break;
        }
    }
    let found = findings(&pooled, &[]).await;
    assert_eq!(level(&found, "stranded_locks"), "problem", "{found:#?}");
    assert!(message(&found, "stranded_locks").ends_with(&format!("{pid} (1 lock)")));
    let stranded = found.iter().find(|one| one["name"] == "stranded_locks");
    let command = format!("cargo advisory locks terminate {pid}");
    assert_eq!(stranded.unwrap()["fix"], serde_json::json!([command]));
    // The same lock of a program that has its own session is not stranded.
    let own = findings(db.url(), &[]).await;
    assert_eq!(level(&own, "stranded_locks"), "fine");
    // Through the pooler it can be, as the program has the pooler's role and address; it is not to
    // be ended unseen.
    locks(&db, &["terminate", &pid.to_string(), "--yes"])
        .await
        .exits(0);
    db.until_no_locks().await;
    let mut direct = holds(&db, "leader", "SELECT pg_advisory_lock(8)").await;
    let leader = pid_of(&mut direct).await;
    let found = findings(&pooled, &[]).await;
    assert_eq!(level(&found, "stranded_locks"), "advice", "{found:#?}");
    let said = message(&found, "stranded_locks");
    let end = format!("that connects directly from its address: {leader} (1 lock)");
    assert!(said.ends_with(&end), "{said}");
    let stranded = found.iter().find(|one| one["name"] == "stranded_locks");
    let command = format!("cargo advisory locks --filter {leader}");
    assert_eq!(stranded.unwrap()["fix"], serde_json::json!([command]));
    drop(direct);
    db.until_no_locks().await;
    assert_eq!(
        level(&findings(&pooled, &[]).await, "stranded_locks"),
        "fine"
    );
}
