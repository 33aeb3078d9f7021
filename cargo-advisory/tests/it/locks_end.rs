//! A statement or a session is ended only on purpose.

use advisory_tests::futures::spawn_blocking;
use std::process::{Command, Stdio};

use advisory_tests::{Database, left_out, pid_of};
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection};

use crate::live_view::{holder, locks, waiter};
use crate::programs::{assert_has, assert_has_all, assert_lacks, assert_lacks_all, url_as};

#[tokio::test(flavor = "multi_thread")]
async fn a_script_has_to_say_yes_and_then_the_locks_are_free() {
    let db = Database::create().await;
    let hold = "BEGIN; SELECT pg_advisory_xact_lock(key) FROM (VALUES (5), (21), (22), (23), (24)) AS v (key)";
    let mut job = holder(&db, "job", hold).await;
    let held_by = pid_of(&mut job).await.to_string();
    let (awaits, waiting) = waiter(&db, "web", "SELECT pg_advisory_lock(5)").await;

    let asked = locks(&db, &["terminate", &held_by]).await.exits(2);
    assert_eq!(asked.out, "");
    assert_has_all(
        &asked.err,
        &[
            "job (",
            "its transaction is open",
            "last ran: SELECT",
            "holds 5 (xact or session)",
            "holds 23 (",
            "holds 1 lock more, for which nobody waits",
            &format!("{awaits} has waited for it for "),
            "is rolled back",
            "write `--yes`",
        ],
    );
    assert_lacks_all(&asked.err, &["holds 24", "waits for its"]);
    assert_eq!(db.locks().await.len(), 6, "nothing was ended");

    let idle = locks(&db, &["cancel", &held_by, "--yes"]).await.exits(1);
    assert_has(&idle.err, "nothing to cancel");

    let done = locks(&db, &["terminate", &held_by, "--yes"]).await.exits(0);
    assert_has(&done.err, "has ended, and its locks are released");
    let mut web = waiting.await.unwrap();
    assert_eq!(pid_of(&mut web).await, awaits);
    job.batch_execute("SELECT 1").await.unwrap_err();
}

/// Without `track_activities` the server records neither the state nor the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn an_unrecorded_transaction_is_not_called_closed() {
    let db = Database::create().await;
    let hold = "SET track_activities = off; BEGIN; SELECT pg_advisory_xact_lock(key) FROM generate_series(5, 8) AS key";
    let mut job = holder(&db, "job", hold).await;
    let pid = pid_of(&mut job).await.to_string();
    let (_, waiting) = waiter(&db, "web", "SELECT pg_advisory_lock(5)").await;
    let asked = locks(&db, &["terminate", &pid]).await;
    let shown = locks(&db, &[]).await;
    for text in [&asked.err, &shown.out] {
        assert_has_all(
            &text,
            &[
                "what it does is not known: `track_activities` is off",
                "a transaction that is open is rolled back",
            ],
        );
        assert_lacks(&text, "no transaction is open");
    }
    assert_lacks(&asked.err, "nobody waits");
    drop(job);
    drop(waiting.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiters_statement_is_cancelled_and_its_session_stays() {
    let db = Database::create().await;
    let held = holder(&db, "job", "SELECT pg_advisory_lock(5)").await;
    let (pid, waiting) = waiter(&db, "web", "SELECT pg_advisory_lock(5)").await;
    let said = locks(&db, &["cancel", "-y", &pid.to_string()])
        .await
        .exits(0);
    assert_has(&said.err, "has waited for 5 for ");
    assert_has(&said.err, "was cancelled");
    assert_lacks(&said.err, "waits for a ");
    let mut web = waiting.await.unwrap();
    assert_eq!(pid_of(&mut web).await, pid);
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_advisory_lock_is_left_alone() {
    let db = Database::create().await;
    let mut bystander = holder(&db, "web", "BEGIN").await;
    let pid = pid_of(&mut bystander).await.to_string();
    for words in [["terminate", &pid, "--yes"], ["cancel", &pid, "--yes"]] {
        let said = locks(&db, &words).await.exits(1);
        assert_has(&said.err, "Nothing was done.");
    }
    bystander.batch_execute("SELECT 1").await.unwrap();
    for pid in ["0", "-1", "x"] {
        let said = locks(&db, &["terminate", "--", pid]).await;
        assert_eq!(said.code, Some(2), "{pid}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_the_right_learns_which_role_has_it() {
    let db = Database::create().await;
    let role = format!("ends_{}", std::process::id());
    db.run(&format!("CREATE ROLE {role} LOGIN")).await;
    let mut job = holder(&db, "job", "SELECT pg_advisory_lock(5)").await;
    let pid = pid_of(&mut job).await.to_string();
    let url = url_as(&db, &role);
    let words = ["terminate", &pid, "--yes", "--database-url", &url];
    let said = locks(&db, &words).await.exits(1);
    let hidden = format!("its activity is hidden from role `{role}`: GRANT pg_monitor TO ");
    assert_has(&said.err, &hidden);
    db.run(&format!("GRANT pg_monitor TO {role}")).await;
    let said = locks(&db, &words).await.exits(1);
    assert_has(&said.err, "Only a superuser may");
    job.batch_execute("SELECT 1").await.unwrap();
    // A session of a role that is not a superuser.
    db.run(&format!("CREATE ROLE {role}_job LOGIN")).await;
    let job_url = url_as(&db, &format!("{role}_job"));
    let mut job = AsyncPgConnection::establish(&job_url).await.unwrap();
    job.batch_execute("SELECT pg_advisory_lock(6)")
        .await
        .unwrap();
    let pid = pid_of(&mut job).await.to_string();
    let words = ["terminate", &pid, "--yes", "--database-url", &url];
    let said = locks(&db, &words).await.exits(1);
    let refused = format!(
        "Role `{role}` may not signal {pid}: use the role of that session, or GRANT pg_signal_backend TO "
    );
    assert_has(&said.err, &refused);
    job.batch_execute("SELECT 1").await.unwrap();
    drop(job);
    db.run(&format!(
        "REVOKE pg_monitor FROM {role}; DROP ROLE {role}, {role}_job"
    ))
    .await;
}

/// On a terminal, which `script` provides.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_and_only_yes_means_yes() {
    if Command::new("script")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        return left_out("terminal", "there is no `script` on this system");
    }
    let db = Database::create().await;
    let mut job = holder(&db, "job", "SELECT pg_advisory_lock(5)").await;
    let pid = pid_of(&mut job).await;
    let answer = |answer: &'static str| {
        let url = db.url().to_owned();
        let command = format!(
            "{} locks terminate {pid}",
            env!("CARGO_BIN_EXE_cargo-advisory")
        );
        spawn_blocking(move || {
            let typed = format!("printf '{answer}' | script -qec '{command}' /dev/null");
            let output = Command::new("sh")
                .args(["-c", &typed])
                .env("DATABASE_URL", url)
                .env_remove("CARGO_TERM_COLOR")
                .output()
                .unwrap();
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.code(), shown)
        })
    };
    for no in ["\\n", "n\\n", "no\\n"] {
        let (code, shown) = answer(no).await.unwrap();
        assert_eq!(code, Some(1), "{shown}");
        assert_has(&shown, &format!("End the session of {pid}? [y/N]"));
        assert_has(&shown, "Nothing was done.");
    }
    job.batch_execute("SELECT 1").await.unwrap();
    let (code, shown) = answer("y\\n").await.unwrap();
    assert_eq!(code, Some(0), "{shown}");
    job.batch_execute("SELECT 1").await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_of_the_list_are_refused() {
    let db = Database::create().await;
    for (flag, value) in [
        ("--format", Some("json")),
        ("--output", Some("locks.txt")),
        ("--watch", None),
        ("--older-than", Some("5s")),
        ("--lease-table", Some("leases")),
    ] {
        let mut words = vec![flag];
        words.extend(value);
        words.extend(["cancel", "4711", "--yes"]);
        let said = locks(&db, &words).await.exits(2);
        assert_eq!(said.out, "");
        let why = format!("`{flag}` does not apply to `cancel`: leave it out");
        assert_has(&said.err, &why);
    }
}
