//! The live view with a thousand locks, and as the pages show it.

use advisory_tests::futures::spawn_blocking;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use advisory_runtime::lease::{Request, Table};
use advisory_tests::leases::{leases_at, once, orphan};
use advisory_tests::{Database, left_out, pid_of};

use crate::live_view::{does, holder, locks, locks_on_terminal, shape, waiter};
use crate::programs::{assert_has, assert_has_all, assert_lacks, assert_starts};

/// The first lines of what `--watch` writes, in a pipe or on a terminal of 200 columns and 24
/// lines.
async fn watched(db: &Database, words: &str, on_terminal: bool, lines: usize) -> Vec<String> {
    let command = env!("CARGO_BIN_EXE_cargo-advisory");
    let mut line = format!("'{command}' locks --watch --interval 50ms {words}");
    if on_terminal {
        line = format!("exec script -qec \"stty cols 200 rows 24; {line}\" /dev/null");
    }
    let url = db.url().to_owned();
    spawn_blocking(move || {
        let mut watching = Command::new("sh")
            .args(["-c", &line])
            .env("DATABASE_URL", url)
            .env("NO_COLOR", "1")
            .env_remove("CARGO_TERM_COLOR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let read = BufReader::new(watching.stdout.take().unwrap()).lines();
        let read = read.map(|line| line.unwrap().trim_end().to_owned());
        let first: Vec<String> = read.take(lines).collect();
        // In a pipe it ends by itself, since the reader has gone; on a terminal it stays.
        if on_terminal {
            watching.kill().unwrap();
        }
        watching.wait().unwrap();
        first
    })
    .await
    .unwrap()
}

/// A thousand locks of one session, with two waiters.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_locks_are_counted_sorted_by_waits_and_filtered() {
    let db = Database::create().await;
    let take = "SELECT pg_advisory_lock(1000000 + key) FROM generate_series(1, 1000) AS key";
    let held = holder(&db, "hoarder", take).await;
    let (first, one) = waiter(&db, "patient", "SELECT pg_advisory_lock(1000999)").await;
    let (second, two) = waiter(&db, "hasty", "SELECT pg_advisory_lock(1000001)").await;
    let seen = watched(&db, "", false, 14).await;
    assert_starts(&seen[0], "1000 locks, 2 waiters in database `");
    let table = seen.iter().position(|line| line.starts_with("LOCK "));
    let rows = &seen[table.unwrap_or_else(|| panic!("{seen:#?}")) + 1..];
    // The longest waiter comes first.
    assert_starts(&rows[0], "1000999 ");
    assert_has(&rows[1], &format!(" {first} "));
    assert_starts(&rows[2], "1000001 ");
    assert_has(&rows[3], &format!(" {second} "));
    // The other locks of the session are one line.
    assert_starts(&rows[4], "998 locks without a name ");
    let said = locks(&db, &[]).await.out;
    assert!(said.lines().count() < 20, "{said}");

    for (filter, count) in [
        ("HASTY", "1 lock with `HASTY`, 1 waiter in"),
        ("100099", "10 locks with `100099`, 1 waiter in"),
        // A number can contain the process id too.
        (
            &*first.to_string(),
            &*format!("with `{first}`, 1 waiter in"),
        ),
        ("nobody", "no advisory locks with `nobody` in"),
    ] {
        let said = locks(&db, &["--filter", filter]).await.exits(0);
        assert_has(&said.out, count);
    }
    if Command::new("script").arg("--version").output().is_err() {
        return left_out("a terminal", "`script` is not installed");
    }
    let seen = watched(&db, "--filter 1000", true, 23).await.join("\n");
    assert_has(&seen, "every 0.0s; Ctrl-C ends");
    assert_has_all(
        &seen,
        &[
            "1000 locks with `1000`, 2 waiters",
            "1000999 ",
            "… and more: `--filter` narrows it",
        ],
    );
    assert_eq!(
        seen.matches("Ctrl-C ends").count(),
        1,
        "one picture has the terminal's lines: {seen}"
    );
    drop(held);
    for waiting in [one, two] {
        drop(waiting.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_leases_of_a_pattern_are_a_few_lines() {
    let db = Database::create().await;
    let table = Table::new().held_by("worker-7").unwrap();
    table.set_up(&mut db.connect().await).await.unwrap();
    let leases = leases_at(db.url(), 1).table(table.clone());
    let request = |pattern: &'static str, id: u32| {
        let made = Request::rendered(pattern, format!("{pattern}:{id}"));
        made.ttl(Duration::from_secs(600 + u64::from(id)))
    };
    for id in 0..12 {
        let request = request("report:<month>", id);
        if id % 4 == 3 {
            let day = Duration::from_secs(86_400);
            once(&leases, request.keep(day)).await.unwrap();
        } else {
            orphan(db.url(), &table, request).await;
        }
    }
    orphan(db.url(), &table, request("mail:<id>", 0)).await;
    let shown = locks(&db, &[]).await.out;
    let leases: Vec<&str> = shown
        .lines()
        .skip_while(|line| !line.starts_with("LEASE "))
        .collect();
    let count = |text: &str| leases.iter().filter(|line| line.starts_with(text)).count();
    assert_eq!(
        (count("report:<month> "), count("mail:<id> ")),
        (3, 1),
        "{shown}"
    );
    let rest = leases
        .iter()
        .find(|line| line.starts_with("└─ and 9 more "))
        .unwrap();
    assert_has(&rest, "6 held, 3 done");
    let only = locks(&db, &["--filter", "mail"]).await.out;
    assert_has(&only, "mail:<id>");
    assert_lacks(&only, "report");
}

/// A polling call is not a waiter at the server, but it is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_try_is_shown() {
    let db = Database::create().await;
    let held = holder(
        &db,
        "job",
        "SELECT pg_advisory_lock(5), pg_advisory_lock(6)",
    )
    .await;
    let poll = "/*advisory:export:<id>*/;SELECT pg_catalog.pg_try_advisory_lock(5)";
    let mut polling = holder(&db, "poller", poll).await;
    let pid = pid_of(&mut polling).await;
    does(&mut polling, poll).await;
    let said = locks(&db, &[]).await.out;
    let lines: Vec<&str> = said.lines().collect();
    assert_starts(&lines[1], "export:<id> (5) ");
    assert_starts(&lines[2], "└─ tried, 0.");
    assert_has(&lines[2], &format!(" {pid} "));
    assert_has(&lines[2], "poller (");
    assert_starts(&lines[3], "6 ");
    assert_has(&said, "2 locks, 0 waiters");
    // A call that has got the lock is a holder, and no longer polls.
    drop(held);
    db.until_no_locks().await;
    does(&mut polling, poll).await;
    let said = locks(&db, &[]).await.out;
    assert_lacks(&said, "tried");
}

/// The samples on the pages are the command's output for one call that makes two others wait.
#[tokio::test(flavor = "multi_thread")]
async fn the_samples_of_the_pages_are_what_is_printed() {
    let db = Database::create().await;
    let call = "/*advisory:<tenant_id>:<date>*/;SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;\
                SELECT pg_catalog.pg_advisory_xact_lock(1839462713);BEGIN";
    let mut held = holder(&db, "booking-service", call).await;
    does(
        &mut held,
        "SELECT 1 FROM pg_class WHERE relname = 'booking'",
    )
    .await;
    let (_, one) = waiter(&db, "booking-service", call).await;
    let (_, two) = waiter(&db, "booking-service", call).await;
    let Some(printed) = locks_on_terminal(&db, 100, "").await else {
        return left_out("a terminal", "`script` is not installed");
    };
    let (printed, _) = printed.split_once("\n\n1 lock, ").unwrap();
    for page in [
        include_str!("../../README.md"),
        include_str!("../../../README.md"),
        include_str!("../../../advisory-runtime/docs/watching.md"),
    ] {
        let samples = page.split("```text\n").skip(1);
        let samples = samples.filter_map(|rest| rest.split("```").next());
        let mut samples =
            samples.filter(|sample| sample.starts_with("LOCK ") && sample.contains(" PID "));
        let sample = samples.next().expect("a sample");
        // The first screen shows the table alone.
        let (table, _) = printed.split_once("\n\n").unwrap_or((printed, ""));
        let printed = if page.starts_with("# advisory\n") {
            table
        } else {
            printed
        };
        assert_eq!(shape(sample), shape(printed), "{printed}");
    }
    drop(held);
    for waiting in [one, two] {
        drop(waiting.await.unwrap());
    }
}
