//! Each command and query of `docs/stuck-locks.md`, run on a lock that is stuck.

use advisory_tests::futures::spawn;
use std::time::Duration;

use advisory_runtime::lease::{Request, Table};
use advisory_tests::leases::orphan;
use advisory_tests::{Database, pid_of};
use diesel::sql_types::{Integer, Nullable, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use crate::live_view::{does, holder, waiter};
use crate::programs::{Said, assert_has, assert_lacks, booking_service, run_at};

const PAGE: &str = include_str!("../../../docs/stuck-locks.md");

/// The blocks of one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("\n```{language}\n");
    let blocks = PAGE.split(fence.as_str()).skip(1);
    blocks
        .filter_map(|rest| Some(rest.split_once("\n```")?.0))
        .collect()
}

async fn cargo(db: &Database, line: &str) -> Said {
    let words = line.split_whitespace().map(|word| word.trim_matches('\''));
    let words: Vec<&str> = words.collect();
    assert_eq!(words[..2], ["cargo", "advisory"], "{line}");
    run_at(db.url(), &words[2..]).await
}

/// A log in which one session has waited.
const WAIT: &str = "2026-11-22 07:06:19.711 UTC [3] LOG:  process 3 acquired ExclusiveLock on advisory lock [5,0,42,1] after 1689.402 ms\n";

#[tokio::test(flavor = "multi_thread")]
async fn every_command_does_what_the_page_says() {
    let db = Database::create().await;
    let artifact = booking_service();
    let stuck = "SELECT pg_advisory_lock(42424242)";
    let lines = blocks("sh");
    assert_eq!(lines.len(), 9, "{lines:?}");
    let table = Table::new();
    table.set_up(&mut db.connect().await).await.unwrap();
    let log = crate::programs::file("runbook.log", WAIT);
    for line in lines {
        let mut job = holder(&db, "cleanup-job", stuck).await;
        let held_by = pid_of(&mut job).await;
        let (awaits, waiting) = waiter(&db, "web", "SELECT pg_advisory_lock(42424242)").await;
        // An idle holder has no statement to cancel, so here it is the waiter's.
        let pid = if line.contains("cancel") {
            awaits
        } else {
            held_by
        };
        let mut line = line
            .replace("target/release/shop", &artifact)
            .replace("4711", &pid.to_string())
            .replace("30s", "0s")
            .replace("postgresql.log", &log);
        if line.contains(" lease ") {
            let request = Request::text("webhook:42").ttl(Duration::from_secs(3600));
            orphan(db.url(), &table, request).await;
        }
        if line.contains("cancel") || line.contains("terminate") || line.contains(" release ") {
            line += " --yes";
        }
        let said = cargo(&db, &line).await;
        if line.ends_with(" doctor") {
            // The server's age can be a problem by itself.
            assert_has(&said.out, " fine, ");
            drop(job);
            drop(waiting.await.unwrap());
            db.until_no_locks().await;
            continue;
        }
        let (code, word) = match line.split_whitespace().nth(3) {
            Some(file) if *file == *log => (0, "1 wait for 1 lock"),
            Some("release") => (0, "The key is free."),
            Some("cancel") => (0, "was cancelled"),
            Some("terminate") => (0, "its locks are released"),
            Some("--older-than") => (1, "1 lock older than 0s, 1 waiter"),
            Some("--artifact") => (0, "idempotency-cleanup (42424242)"),
            Some(find) if find.starts_with("--find=") => (0, " is booking:42  sha256"),
            _ => (0, "sha256"),
        };
        assert_eq!(said.code, Some(code), "{line}: {said:?}");
        assert!(
            said.out.contains(word) || said.err.contains(word),
            "{line}: {said:?}"
        );
        drop(job);
        let waiter = waiting.await.unwrap();
        drop(waiter);
        db.until_no_locks().await;
    }
}

#[derive(Debug, QueryableByName, PartialEq)]
struct Found {
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Integer)]
    pid: i32,
    #[diesel(sql_type = Text)]
    mode: String,
    #[diesel(sql_type = Nullable<Text>)]
    application_name: Option<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_does_what_the_page_says() {
    let db = Database::create().await;
    let queries = blocks("sql");
    let [locks, terminate, prepared, rollback] = queries[..] else {
        panic!("{queries:?}");
    };
    let mut conn = db.connect().await;

    let mut keys = Vec::new();
    for (arguments, key) in [("-7", "-7"), ("42424242", "42424242"), ("7, -3", "(7, -3)")] {
        let sql = format!("SELECT pg_advisory_lock({arguments})");
        let mut held = holder(&db, "job", &sql).await;
        keys.push((pid_of(&mut held).await, key, held));
    }
    let found: Vec<Found> = sql_query(locks.trim_end_matches(';'))
        .load(&mut conn)
        .await
        .unwrap();
    assert_eq!(found.len(), keys.len(), "{found:?}");
    for (pid, key, _) in &keys {
        let row = found.iter().find(|row| row.pid == *pid).unwrap();
        assert_eq!((&*row.key, &*row.mode), (*key, "ExclusiveLock"));
        assert_eq!(row.application_name.as_deref(), Some("job"));
    }
    let (pid, ..) = keys[0];
    does(&mut conn, &terminate.replace("4711", &pid.to_string())).await;
    let left: Vec<i32> = db.locks().await.iter().map(|lock| lock.pid).collect();
    assert!(!left.contains(&pid) && left.len() == 2, "{left:?}");

    does(&mut conn, prepared).await;
    let prepare = "BEGIN; SELECT pg_advisory_xact_lock(8); PREPARE TRANSACTION 'invoice-4711'";
    does(&mut conn, prepare).await;
    does(&mut conn, rollback).await;
}

/// The results of the recipes, for locks that are all held.
#[tokio::test(flavor = "multi_thread")]
async fn the_recipes_mislead_as_the_page_says() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    // A number that is a hash, a small one, and the pair with the bits of the small one.
    let hash = -1_839_462_713_i64;
    let sql =
        format!("SELECT pg_advisory_lock({hash}), pg_advisory_lock(42), pg_advisory_lock(0, 42)");
    does(&mut conn, &sql).await;
    let count = async |condition: &str| {
        let sql = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = \
             (SELECT oid FROM pg_database WHERE datname = current_database()) AND {condition}"
        );
        db.count(&sql).await
    };
    assert_eq!(count("true").await, 3);
    assert_eq!(count(&format!("objid::bigint = {hash}")).await, 0);
    assert_eq!(count("classid = 0").await, 2, "the hash is hidden");
    assert_eq!(
        count("classid = 0 AND objid = 42").await,
        2,
        "two locks, one look"
    );
    assert_eq!(count("relation IS NOT NULL").await, 0);
    // It also finds a transaction-level lock.
    does(&mut conn, "BEGIN; SELECT pg_advisory_xact_lock(43)").await;
    assert_eq!(count("classid = 0 AND objid = 43").await, 1);

    // A waiter ahead in the queue is one of the blockers, but ending it releases nothing.
    let (first, one) = waiter(&db, "first", "SELECT pg_advisory_lock(42)").await;
    let (second, two) = waiter(&db, "second", "SELECT pg_advisory_lock(42)").await;
    let blockers = format!("SELECT cardinality(pg_blocking_pids({second}))");
    assert_eq!(db.count(&blockers).await, 2);
    db.terminate(first).await;
    drop(one.await.unwrap());
    assert_eq!(db.count(&blockers).await, 1);
    drop::<AsyncPgConnection>(conn);
    two.await.unwrap().batch_execute("SELECT 1").await.unwrap();
}

/// A node of the diagram: its name, and the text in it.
struct Node {
    name: &'static str,
    shape: char,
    text: &'static str,
}

/// `name["text"]`, `name(["text"])` or `name{"text"}`; the text is empty if there is only the name.
fn node(written: &'static str) -> Node {
    let at = written.find(['[', '(', '{']).unwrap_or(written.len());
    let (name, rest) = written.split_at(at);
    let text = rest.split('"').nth(1).unwrap_or_default();
    let shape = rest.chars().next().unwrap_or(' ');
    Node { name, shape, text }
}

/// The arrows of the diagram: from, label, to.
fn arrows() -> Vec<(Node, &'static str, Node)> {
    let blocks = blocks("mermaid");
    let [diagram] = blocks[..] else {
        panic!("one diagram: {blocks:?}");
    };
    let mut lines = diagram.lines();
    assert_eq!(lines.next(), Some("flowchart TD"));
    let arrow = |line: &'static str| {
        let (from, to) = line
            .trim()
            .split_once(" --> ")
            .unwrap_or_else(|| panic!("{line}"));
        match from.split_once(" -- ") {
            Some((from, label)) => (node(from), label.trim_matches('"'), node(to)),
            None => (node(from), "", node(to)),
        }
    };
    lines.map(arrow).collect()
}

/// Each step is one command or one query of the page, each question has answers, and every path
/// ends.
#[test]
fn each_step_of_the_diagram_is_a_command_or_a_query_of_the_page() {
    let steps = [blocks("sh"), blocks("sql")].concat();
    let arrows = arrows();
    let mut commands = 0;
    for (from, label, to) in &arrows {
        for written in [from, to] {
            let is_step = written.shape == '[' && !written.text.is_empty();
            if is_step {
                let has = |step: &&str| step.starts_with(written.text);
                assert!(steps.iter().any(has), "{}", written.text);
                commands += 1;
            }
        }
        let is_question = arrows
            .iter()
            .any(|(_, _, to)| to.name == from.name && to.shape == '{');
        assert_eq!(is_question, !label.is_empty(), "{} {label}", from.name);
        let goes_on = arrows.iter().any(|(next, ..)| next.name == to.name);
        assert!(goes_on || to.name == "done", "{}", to.name);
        let was_shown = |one: &Node| one.name == from.name && !one.text.is_empty();
        let is_shown = arrows.iter().any(|(a, _, b)| was_shown(a) || was_shown(b));
        assert!(is_shown, "{} has no text", from.name);
    }
    assert_eq!(commands, 8);
}

/// The labels of the arrows are the command's output.
#[tokio::test(flavor = "multi_thread")]
async fn the_answers_of_the_diagram_are_what_is_printed() {
    let db = Database::create().await;
    db.run("CREATE TABLE t (i int); INSERT INTO t VALUES (1)")
        .await;
    let arrows = arrows();
    let answers = arrows.iter().filter(|(from, ..)| from.name == "holder");
    let answers: Vec<&str> = answers.map(|(_, label, _)| *label).collect();
    for answer in answers {
        let lock = "SELECT pg_advisory_xact_lock(8)";
        let shown = match answer {
            "active" => {
                // The sleep is the holder's statement. It is terminated below.
                let (_, running) =
                    waiter_of_a_row(&db, "SELECT pg_advisory_lock(8); SELECT pg_sleep(60)").await;
                db.until_active("pg_sleep").await;
                let shown = cargo(&db, "cargo advisory locks").await.out;
                let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' \
                    AND datname = current_database() AND pid <> pg_backend_pid()";
                assert_eq!(db.count(end).await, 1);
                drop(running.await);
                shown
            }
            "held up by" => {
                let row = holder(&db, "other", "BEGIN; UPDATE t SET i = 2").await;
                let sql = "BEGIN; SELECT pg_advisory_xact_lock(8); UPDATE t SET i = 3";
                let (pid, blocked) = waiter_of_a_row(&db, sql).await;
                let short = format!(
                    "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted)"
                );
                db.until_empty(Duration::from_secs(30), "a waiter", &short)
                    .await;
                let shown = cargo(&db, "cargo advisory locks").await.out;
                drop(row);
                drop(blocked.await.unwrap());
                shown
            }
            "idle in transaction" => {
                let held = holder(&db, "job", &format!("BEGIN; {lock}")).await;
                let shown = cargo(&db, "cargo advisory locks").await.out;
                drop(held);
                shown
            }
            "idle" => {
                let held = holder(&db, "job", "SELECT pg_advisory_lock(8)").await;
                let shown = cargo(&db, "cargo advisory locks").await.out;
                assert_lacks(&shown, "idle in transaction");
                drop(held);
                shown
            }
            "prepared as" => {
                let prepare = format!("BEGIN; {lock}; PREPARE TRANSACTION 'diagram'");
                drop(holder(&db, "job", &prepare).await);
                let shown = cargo(&db, "cargo advisory locks").await.out;
                db.run("ROLLBACK PREPARED 'diagram'").await;
                shown
            }
            // `situations.rs` makes these, and compares the screens.
            "wait for each other" | "is a session of a pooler" | "gives no connection" => {
                let screens = blocks("text");
                assert!(
                    screens.iter().any(|screen| screen.contains(answer)),
                    "{answer}"
                );
                continue;
            }
            // These are not words of the command.
            "it is in the table of leases" | "there is no such lock" => continue,
            other => panic!("{other} is not tested"),
        };
        assert_has(&shown, answer);
        db.until_no_locks().await;
    }
}

/// A session that runs a long statement.
async fn waiter_of_a_row(
    db: &Database,
    sql: &'static str,
) -> (i32, tokio::task::JoinHandle<AsyncPgConnection>) {
    let mut conn = holder(db, "job", "").await;
    let pid = pid_of(&mut conn).await;
    let running = spawn(async move {
        drop(conn.batch_execute(sql).await);
        conn
    });
    (pid, running)
}
