//! Live locks are shown with their names, and without terminal control characters.

use crate::live_view::{CLEANUP, holder, json, locks, waiter};
use advisory_tests::futures::spawn;
use std::time::Duration;

use advisory_runtime::lease::{Request, Table};
use advisory_runtime::well_known;
use advisory_tests::leases::{leases_at, once, orphan};
use advisory_tests::{Database, pid_of};
use diesel_async::SimpleAsyncConnection;

use crate::programs::{
    advisory, assert_has, assert_lacks, assert_starts, booking_service, file, inventory,
};

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_shown_by_name_with_their_waiters_below() {
    let db = Database::create().await;
    let mut job = holder(
        &db,
        "cleanup-job",
        &format!("SELECT pg_advisory_lock({CLEANUP})"),
    )
    .await;
    let (awaits, waiting) = waiter(
        &db,
        "booking-service",
        "/*advisory:<tenant_id>:<date>*/;SELECT pg_catalog.pg_advisory_xact_lock(42424242);BEGIN",
    )
    .await;
    let held_by = pid_of(&mut job).await;
    let artifact = booking_service();
    let dumped = file("names.json", inventory());
    for names in [["--artifact", &artifact], ["--inventory", &dumped]] {
        let said = locks(&db, &names).await.fine();
        let lines: Vec<&str> = said.out.lines().collect();
        assert_starts(&lines[0], "LOCK ");
        assert_starts(
            &lines[1],
            &format!("idempotency-cleanup ({CLEANUP})  {held_by}  "),
        );
        assert_has(&lines[1], "cleanup-job (");
        assert_starts(&lines[2], "└─ waits ");
        assert_has(&lines[2], &awaits.to_string());
        assert_has(&lines[2], "booking-service (");
        let last = lines.last().unwrap();
        assert_starts(&last, "1 lock, 1 waiter in database `");
    }
    // Without an inventory the name is from the comment of the waiter's query.
    let bare = locks(&db, &[]).await;
    let said = format!("\n<tenant_id>:<date> ({CLEANUP})  {held_by} ");
    assert_has(&bare.out, &said);
    drop(job);
    drop(waiting.await.unwrap());
}

/// Patterns and never values; held, done and claimed rows are distinguished.
#[tokio::test(flavor = "multi_thread")]
async fn leases_and_claims_are_shown_with_their_names_and_states() {
    let db = Database::create().await;
    let table = Table::new().held_by("worker-7").unwrap();
    let mut conn = db.connect().await;
    table.set_up(&mut conn).await.unwrap();
    let leased = |id: &str| Request::rendered("report:<month>", format!("report:{id}"));
    orphan(db.url(), &table, leased("2026-10")).await;
    let day = Duration::from_secs(86_400);
    let source = leases_at(db.url(), 1).table(table);
    once(&source, leased("2026-11").keep(day)).await.unwrap();
    db.run(
        "CREATE TABLE jobs (tenant int, no int, locked_until timestamptz, locked_by text, PRIMARY KEY (tenant, no)); \
         INSERT INTO jobs VALUES (1, 7, clock_timestamp() + interval '1 hour', 'one#u'), \
         (1, 8, clock_timestamp() - interval '1 hour', 'two#u'), (1, 9, NULL, NULL), (1, 10, 'infinity', 'three#u')",
    )
    .await;
    let shown = locks(&db, &["--claims", "public.jobs"]).await.out;
    for row in [
        ["report:<month>", "worker-7", "held"],
        ["report:<month>", "worker-7", "done"],
        ["public.jobs", "1, 7", "running"],
        ["public.jobs", "1, 8", "expired"],
        ["public.jobs", "1, 10", "forever"],
    ] {
        let has = |line: &str| row.iter().all(|part| line.contains(part));
        assert!(shown.lines().any(has), "{row:?}: {shown}");
    }
    assert_lacks(&shown, "2026");
    assert_lacks(&shown, "1, 9");
    let value = json(&db, &["--claims", "public.jobs"]).await;
    let forever = &value["claims"][2];
    assert_eq!(forever["row"], "1, 10");
    assert!(forever["remaining_ms"].is_null(), "{forever}");
    let found = advisory(&["key", "report:2026-10"]).out;
    let (_, query) = found.rsplit_once("its row:\n").unwrap();
    let row = diesel_async::RunQueryDsl::execute(diesel::sql_query(query), &mut conn);
    assert_eq!(row.await.unwrap(), 1, "{query}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_older_is_shown_and_found() {
    let db = Database::create().await;
    let held = holder(&db, "job", "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    let said = locks(&db, &["--older-than", "1h"]).await.exits(0);
    let none = "no advisory locks older than 1h00m in database `";
    assert_starts(&said.out, none);
    let said = locks(&db, &["--older-than", "0s"]).await.exits(1);
    assert_has(&said.out, "1 lock older than 0s, 0 waiters");
    let said = locks(&db, &["--older-than", "soon"]).await.exits(2);
    assert_has(&said.err, "write `30s`");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_up_a_holder_is_shown_and_a_circle_ends() {
    let db = Database::create().await;
    db.run("CREATE TABLE t (i int); INSERT INTO t VALUES (1)")
        .await;
    let cause = holder(&db, "cause", "BEGIN; UPDATE t SET i = 2").await;
    let mut stuck = holder(&db, "stuck", "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    let stuck_pid = pid_of(&mut stuck).await;
    let blocked = spawn(async move {
        drop(stuck.batch_execute("UPDATE t SET i = 3").await);
    });
    let short = format!(
        "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_locks WHERE pid = {stuck_pid} AND NOT granted)"
    );
    db.until_empty(Duration::from_secs(30), "a waiter", &short)
        .await;
    let said = locks(&db, &[]).await;
    let lines: Vec<&str> = said.out.lines().collect();
    assert_has(&lines[1], "stuck (");
    assert_starts(&lines[2], "held up by a row lock of");
    assert_has(&lines[2], "cause (");
    drop(cause);
    blocked.await.unwrap();

    let patient = "SET deadlock_timeout = '1min';";
    let mut one = holder(&db, "one", &format!("{patient} SELECT pg_advisory_lock(1)")).await;
    let mut two = holder(&db, "two", &format!("{patient} SELECT pg_advisory_lock(2)")).await;
    let pids = [pid_of(&mut one).await, pid_of(&mut two).await];
    let circle = [
        spawn(async move { drop(one.batch_execute("SELECT pg_advisory_lock(2)").await) }),
        spawn(async move { drop(two.batch_execute("SELECT pg_advisory_lock(1)").await) }),
    ];
    db.until_waiting(1).await;
    db.until_waiting(2).await;
    let said = locks(&db, &[]).await;
    assert_eq!(said.out.matches("waits ").count(), 2, "{}", said.out);
    assert_has(&said.out, "2 locks, 2 waiters");
    db.terminate(pids[0]).await;
    for done in circle {
        done.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_takes_no_lock_names_none() {
    let db = Database::create().await;
    let said = locks(&db, &["--artifact", env!("CARGO_BIN_EXE_cargo-advisory")])
        .await
        .exits(2);
    assert_eq!(said.out, "");
    assert_has(&said.err, "has no lock sites");
    assert_has(&said.err, "leave `--artifact` out");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_not_certain_say_so() {
    let db = Database::create().await;
    let calls: Vec<String> = (0..40)
        .map(|key| format!("pg_catalog.pg_advisory_lock({key})"))
        .collect();
    for (text, first, last) in [
        // The server truncates the query before the last number.
        ("a:<x>", "a:<x> (0)", "perhaps a:<x> (39)"),
        ("a:<x>, b:<y>", "a:<x> or b:<y> (0)", "a:<x> or b:<y> (39)"),
    ] {
        let take = format!("/*advisory:{text}*/;SELECT {}", calls.join(","));
        let held = holder(&db, "job", &take).await;
        let said = locks(&db, &["--filter", "a:<x>"]).await;
        for label in [first, last] {
            assert!(
                said.out.lines().any(|line| line.starts_with(label)),
                "{label}: {}",
                said.out
            );
        }
        drop(held);
        db.until_no_locks().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_locks_of_other_tools_have_their_names() {
    let db = Database::create().await;
    let (_, name) = db.url().rsplit_once('/').unwrap();
    let name = name.split('?').next().unwrap();
    let rails = well_known::rails(name);
    let migrate = well_known::golang_migrate(name, "public", "schema_migrations");
    let numbers = [well_known::PRISMA, rails, migrate, 1, 1000, 43];
    let take = numbers.map(|number| format!("pg_advisory_lock({number})"));
    let held = holder(&db, "job", &format!("SELECT {}", take.join(","))).await;
    let said = locks(&db, &[]).await;
    for label in [
        "Prisma Migrate (72707369) ".to_owned(),
        format!("Rails ({rails}) "),
        format!("golang-migrate ({migrate}) "),
        "perhaps graph-node or Airflow (1) ".to_owned(),
        "perhaps authentik (1000) ".to_owned(),
        "43 ".to_owned(),
    ] {
        let has = |line: &str| line.starts_with(&label);
        assert!(said.out.lines().any(has), "{label}: {}", said.out);
    }
    // The program's own name for its number takes precedence.
    drop(held);
    db.until_no_locks().await;
    let own = "/*advisory:nightly*/;SELECT pg_catalog.pg_advisory_lock(1)";
    let held = holder(&db, "job", own).await;
    let said = locks(&db, &[]).await;
    assert_has(&said.out, "\nnightly (1) ");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_others_wrote_steers_the_terminal() {
    let db = Database::create().await;
    let nasty = "\u{1b}]0;owned\u{7} \u{9b}31m \u{202e}";
    let take = format!("/*advisory:{nasty}*/SELECT pg_advisory_lock(5)");
    let held = holder(&db, "job", &take).await;
    for words in [&[][..], &["--format", "json"]] {
        let said = locks(&db, words).await;
        let steers = |c: &char| *c != '\n' && (c.is_control() || *c == '\u{202e}');
        assert_eq!(said.out.chars().find(steers), None, "{}", said.out);
        assert_has(&said.out, "owned");
    }
    let value = json(&db, &[]).await;
    let query = value["backends"][0]["query"].as_str().unwrap();
    assert_has(&query, nasty);
    drop(held);
}
