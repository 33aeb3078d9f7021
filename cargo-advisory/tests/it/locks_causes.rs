//! Each cause of a wait, with the command that ends it.

use advisory_tests::futures::{spawn, spawn_blocking};
use std::io::{BufReader, Read};

use advisory_runtime::lease::{Request, Table};
use advisory_tests::leases::orphan;
use advisory_tests::{Database, left_out, pid_of};

use crate::live_view::{does, holder, locks, locks_on_terminal, waiter};
use crate::programs::{
    assert_has, assert_has_all, assert_lacks, assert_starts, leased, program_of,
};

/// The lines of one cause, which ends at an empty line.
fn cause(out: &str, first: &str) -> String {
    let mut parts = out.split("\n\n");
    let part = parts.find(|part| part.starts_with(first));
    part.unwrap_or_else(|| panic!("{first}: {out}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cause_has_its_command_and_the_command_ends_it() {
    for (hold, reason, word, effect) in [
        (
            "BEGIN; SELECT pg_advisory_xact_lock(5)",
            "idle in transaction for",
            "terminate",
            "its transaction is rolled back, its lock is released",
        ),
        (
            "SELECT pg_advisory_lock(5)",
            "with a session-level lock that it has not released",
            "terminate",
            "ends its session: its lock is released",
        ),
    ] {
        let db = Database::create().await;
        let mut job = holder(&db, "job", hold).await;
        let pid = pid_of(&mut job).await;
        // Without a waiter it is not a cause.
        let said = locks(&db, &[]).await.out;
        assert_lacks(&said, "cargo advisory locks ");
        let (_, waiting) = waiter(&db, "web", "SELECT pg_advisory_lock(5)").await;
        let said = locks(&db, &[]).await.out;
        let shown = cause(&said, &format!("{pid}  job ("));
        assert_has_all(
            &shown,
            &[
                "holds up 1 session, for ",
                reason,
                effect,
                "last statement: ",
            ],
        );
        let command = format!("cargo advisory locks {word} {pid}");
        assert!(shown.lines().any(|line| line.trim() == command), "{shown}");
        locks(&db, &[word, &pid.to_string(), "--yes"])
            .await
            .exits(0);
        drop(waiting.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_statement_is_cancelled_first() {
    let db = Database::create().await;
    let mut job = holder(&db, "job", "").await;
    let pid = pid_of(&mut job).await;
    let running = spawn(async move {
        // The sleep is the statement that is cancelled.
        let sql = "BEGIN; SELECT pg_advisory_xact_lock(5); SELECT pg_sleep(600)";
        drop(diesel_async::SimpleAsyncConnection::batch_execute(&mut job, sql).await);
        job
    });
    db.until_active("pg_sleep").await;
    let (_, waiting) = waiter(&db, "web", "SELECT pg_advisory_lock(5)").await;
    let shown = cause(&locks(&db, &[]).await.out, &format!("{pid}  job ("));
    assert_has_all(
        &shown,
        &[
            "runs a statement for ",
            "statement: BEGIN; SELECT",
            "has to roll back; then its lock is released",
        ],
    );
    assert_has(&shown, &format!("cargo advisory locks cancel {pid}\n"));
    locks(&db, &["cancel", &pid.to_string(), "--yes"])
        .await
        .exits(0);
    let mut job = running.await.unwrap();
    does(&mut job, "ROLLBACK").await;
    drop(waiting.await.unwrap());
}

/// The server no longer shows the statement that took the lock, so it can be a session-level lock,
/// which a cancel does not release.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_not_said_to_release_a_session_lock() {
    let db = Database::create().await;
    let mut job = holder(&db, "job", "SELECT pg_advisory_lock(5)").await;
    let pid = pid_of(&mut job).await;
    let running = spawn(async move {
        // The sleep is the statement that is cancelled.
        drop(
            diesel_async::SimpleAsyncConnection::batch_execute(&mut job, "SELECT pg_sleep(600)")
                .await,
        );
        job
    });
    db.until_active("pg_sleep").await;
    let (_, waiting) = waiter(&db, "web", "SELECT pg_advisory_lock(5)").await;
    let shown = cause(&locks(&db, &[]).await.out, &format!("{pid}  job ("));
    let effect = "has to roll back, which releases a transaction-level lock. If the lock stays, `terminate` releases it";
    assert_has(&shown, effect);
    locks(&db, &["cancel", &pid.to_string(), "--yes"])
        .await
        .exits(0);
    let mut job = running.await.unwrap();
    assert_eq!(db.locks().await.len(), 2, "the lock stays");
    does(&mut job, "SELECT pg_advisory_unlock(5)").await;
    drop(waiting.await.unwrap());
}

/// The session that is named is the last of the chain, not the one that holds the lock and waits
/// itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_cause_is_the_last_of_a_chain() {
    let db = Database::create().await;
    let mut last = holder(&db, "last", "BEGIN; SELECT pg_advisory_xact_lock(1)").await;
    let pid = pid_of(&mut last).await;
    let (_, middle) = waiter(
        &db,
        "middle",
        "SELECT pg_advisory_lock(2), pg_advisory_lock(1)",
    )
    .await;
    let (_, first) = waiter(&db, "first", "SELECT pg_advisory_lock(2)").await;
    let said = locks(&db, &[]).await.out;
    assert_eq!(said.matches("cargo advisory locks ").count(), 1, "{said}");
    let shown = cause(&said, &format!("{pid}  last ("));
    assert_has(&shown, "holds up 2 sessions, the first for ");
    drop(last);
    drop(middle.await.unwrap());
    drop(first.await.unwrap());
}

/// Who waits for two sessions that wait for each other is not one of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_circle_has_only_those_that_wait_for_each_other() {
    let db = Database::create().await;
    let patient = "SET deadlock_timeout = '1min'; SELECT pg_advisory_lock";
    let mut sessions = Vec::new();
    for key in [1, 2, 3] {
        let mut conn = holder(&db, "web", &format!("{patient}({key})")).await;
        sessions.push((pid_of(&mut conn).await, conn));
    }
    let pids: Vec<i32> = sessions.iter().map(|(pid, _)| *pid).collect();
    let mut waiting = Vec::new();
    for ((pid, mut conn), key) in sessions.into_iter().zip([2, 1, 1]) {
        waiting.push(spawn(async move {
            let sql = format!("SELECT pg_advisory_lock({key})");
            drop(diesel_async::SimpleAsyncConnection::batch_execute(&mut conn, &sql).await);
        }));
        let short = format!(
            "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND waitstart IS NOT NULL)"
        );
        db.until_empty(std::time::Duration::from_secs(30), "a waiter", &short)
            .await;
    }
    let (_, last) = waiter(&db, "web", "SELECT pg_advisory_lock(3)").await;
    let said = locks(&db, &[]).await.out;
    let mut circle = pids[..2].to_vec();
    circle.sort_unstable();
    let line = format!("{} and {} wait for each other.", circle[0], circle[1]);
    assert_eq!(said.matches("wait for each other").count(), 1, "{said}");
    assert_has(&said, &format!("\n{line}"));
    // A session can have ended by then, because it has got its lock.
    for pid in pids {
        db.run(&format!("SELECT pg_terminate_backend({pid})")).await;
    }
    for one in waiting {
        one.await.unwrap();
    }
    drop(last.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_has_its_statement() {
    let db = Database::create().await;
    let prepare = "BEGIN; SELECT pg_advisory_xact_lock(8); PREPARE TRANSACTION 'cause-1'";
    drop(holder(&db, "job", prepare).await);
    let (_, waiting) = waiter(&db, "web", "SELECT pg_advisory_lock(8)").await;
    let shown = cause(
        &locks(&db, &[]).await.out,
        "The prepared transaction 'cause-1'",
    );
    let statement = "ROLLBACK PREPARED 'cause-1';";
    assert!(
        shown.lines().any(|line| line.trim() == statement),
        "{shown}"
    );
    db.run(statement).await;
    drop(waiting.await.unwrap());
}

/// Each line is as wide as the terminal at most. A command is not broken, so that it can be copied.
#[track_caller]
fn fits(out: &str, columns: u32) {
    let is_command = |line: &&str| line.starts_with("    cargo advisory ");
    for line in out.lines().filter(|line| !is_command(line)) {
        assert!(line.chars().count() <= columns as usize, "{columns}: {out}");
    }
}

/// Leases, claims, a pooler's session and what this role does not see, each with its note.
#[tokio::test(flavor = "multi_thread")]
async fn each_note_fits_the_terminal() {
    let db = Database::create().await;
    let table = Table::new()
        .held_by("a-service-with-a-long-name@eu-west-1-production:14365@vm")
        .unwrap();
    table.set_up(&mut db.connect().await).await.unwrap();
    for key in ["webhook:<tenant_id>:<delivery_id>", "report:<month>"] {
        let request = Request::rendered(key, key.to_owned());
        orphan(db.url(), &table, request).await;
    }
    db.run(
        "UPDATE public.advisory_lease SET expires_at = clock_timestamp() + interval '12 s'; \
         CREATE TABLE outgoing_mail_of_tenants (id text PRIMARY KEY, locked_until timestamptz, locked_by text); \
         INSERT INTO outgoing_mail_of_tenants VALUES ('3f1c2a34-7a52-4a6f-9d2c-0a1b2c3d4e5f', \
         clock_timestamp() - interval '48 s', 'worker-3@a-service-with-a-long-name.eu-west-1#9f0c')",
    )
    .await;
    let leased = leased("hook", "webhook:<tenant_id: uint>:<delivery_id: uint>");
    let program = program_of("causes-notes.rmeta", &[leased]);
    let call = "/*advisory:tenant:<tenant_id>:room:<room_id>:<date>*/;SELECT pg_catalog.pg_advisory_lock(-4814109257161839213)";
    let held = holder(&db, "web - 10.0.0.7:4711", call).await;
    for columns in [80, 100, 160] {
        let words = format!("--claims outgoing_mail_of_tenants --artifact '{program}'");
        let Some(out) = locks_on_terminal(&db, columns, &words).await else {
            return left_out("a terminal", "`script` is not installed");
        };
        let sentences = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_has_all(
            &sentences,
            &[
                "pooled: the session of a pooler",
                "overdue: not renewed in time",
                "whether a lease is overdue follows",
                "expired: not renewed in time",
                "a key is free at once after",
            ],
        );
        fits(&out, columns);
        // A row is one line.
        for start in ["webhook:<tenant_id>", "outgoing"] {
            let rows = out.lines().skip_while(|line| !line.starts_with(start));
            let next = rows
                .clone()
                .nth(1)
                .unwrap_or_else(|| panic!("{start}: {out}"));
            assert!(!next.starts_with(' '), "{out}");
        }
        // `--watch` stays on the screen, although the terminal continues a command in the next
        // line.
        let all = watched(&db, columns, 200, &words).await;
        let rows = u32::try_from(all.len()).unwrap() + 1;
        let seen = watched(&db, columns, rows, &words).await;
        let heights = seen
            .iter()
            .map(|line| line.chars().count().div_ceil(columns as usize).max(1));
        assert!(
            heights.sum::<usize>() < rows as usize,
            "{columns}: {seen:#?}"
        );
    }
    drop(held);
}

/// The lines of the first picture of `--watch`.
async fn watched(db: &Database, columns: u32, rows: u32, words: &str) -> Vec<String> {
    let command = env!("CARGO_BIN_EXE_cargo-advisory");
    let line = format!(
        "stty cols {columns} rows {rows}; exec {command} locks --watch --interval 1h {words}"
    );
    let mut script = std::process::Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .env("DATABASE_URL", db.url())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env_remove("CARGO_TERM_COLOR")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped());
    let read = move || {
        let mut script = script.spawn().unwrap();
        let mut text = Vec::new();
        let mut bytes = BufReader::new(script.stdout.take().unwrap()).bytes();
        // The rest of the screen is cleared after a picture.
        while !text.ends_with(b"\x1b[J") {
            text.push(bytes.next().unwrap().unwrap());
        }
        script.kill().unwrap();
        script.wait().unwrap();
        String::from_utf8(text).unwrap()
    };
    let text = spawn_blocking(read).await.unwrap();
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        plain.push_str(&part[end + 1..]);
    }
    let lines = plain.lines().map(|line| line.trim_end().to_owned());
    lines.collect()
}

/// The names are shortened instead of continued in another line, and the process ids and states are
/// whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_columns_show_a_lock_in_a_line() {
    let db = Database::create().await;
    let call = "/*advisory:tenant:<tenant_id>:room:<room_id>:<date>*/;SELECT pg_catalog.pg_advisory_lock(-4814109257161839213)";
    let name = "a-service-with-a-long-name@eu-west-1-production";
    let mut held = holder(&db, name, call).await;
    let pid = pid_of(&mut held).await;
    let many = "SELECT pg_advisory_lock(key) FROM generate_series(900001, 907700) AS key";
    let hoarder = holder(&db, "hoarder", many).await;
    let (waits, waiting) = waiter(&db, name, call).await;
    for columns in [80, 100, 160] {
        let Some(out) = locks_on_terminal(&db, columns, "").await else {
            return left_out("a terminal", "`script` is not installed");
        };
        let lines: Vec<&str> = out.lines().collect();
        fits(&out, columns);
        assert_starts(&lines[1], "tenant:<tenant_id>:room");
        assert_has(&lines[1], &format!(" {pid}  session "));
        assert_has(&lines[1], "  idle ");
        assert_starts(&lines[2], "└─ waits ");
        assert_has(&lines[2], &format!(" {waits} "));
        assert_starts(&lines[3], "7700 locks without a name ");
        assert_eq!(lines[4], "", "{out}");
    }
    drop((held, hoarder));
    drop(waiting.await.unwrap());
}
