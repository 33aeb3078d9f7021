//! The waits and deadlocks of a server's log are reported, in each format. The log is that of a
//! real server, on which each has happened.

use crate::logging_server::{Logging, STILL_WAITING, log};
use advisory_tests::futures::spawn;
use std::path::Path;

use advisory_tests::{left_out, owns_server, pid_of};
use diesel_async::SimpleAsyncConnection;
use serde_json::Value;

use crate::live_view::{CLEANUP, does};
use crate::programs::{assert_has, assert_has_all, assert_starts, booking_service};

/// Common prefixes: the default, that of pgBadger's page, that of Amazon's servers, and two more.
const PREFIXES: [&str; 5] = [
    "%m [%p] ",
    "%t [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
    "%t:%r:%u@%d:[%p]:",
    "%m [%p] %q%u@%d ",
    "%m %p pid=%p app=%a ",
];

/// Every kind of wait, once. Returns the name of each process.
async fn scenario(logs: &Logging) -> Vec<(i32, &'static str)> {
    let mut pids = Vec::new();
    // A wait that ends with a grant.
    let mut holder = logs.connect("cleanup-job").await;
    pids.push((pid_of(&mut holder).await, "cleanup-job"));
    does(&mut holder, &format!("SELECT pg_advisory_lock({CLEANUP})")).await;
    let call = "/*advisory:<tenant_id>:<date>*/;SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;\n\
                SELECT pg_catalog.pg_advisory_xact_lock(42424242);BEGIN";
    let (pid, waiting) = logs.wait("booking, \"one\"", "", call, STILL_WAITING).await;
    does(&mut holder, "SELECT pg_advisory_unlock_all()").await;
    drop(waiting.await.unwrap());
    logs.until_logged(&format!("process {pid} acquired"), 1)
        .await;

    // Waits that end without a grant: by a timeout, by an administrator, and one that is too short
    // to be logged.
    does(
        &mut holder,
        "SELECT pg_advisory_lock(7, -3), pg_advisory_lock(72707369)",
    )
    .await;
    let pair = "/*advisory:pair:<a>*/;SELECT pg_catalog.pg_advisory_lock(7,-3)";
    let (pid, waiting) = logs
        .wait("pairs", "SET lock_timeout = '300ms'", pair, STILL_WAITING)
        .await;
    pids.push((pid, "pairs"));
    drop(waiting.await.unwrap());
    let (pid, waiting) = logs
        .wait(
            "prisma",
            "",
            "SELECT pg_advisory_lock(72707369)",
            STILL_WAITING,
        )
        .await;
    does(&mut holder, &format!("SELECT pg_cancel_backend({pid})")).await;
    drop(waiting.await.unwrap());
    let mut conn = logs.connect("short").await;
    does(&mut conn, "SET lock_timeout = '5ms'").await;
    drop(conn.batch_execute(pair).await);
    does(&mut holder, "SELECT pg_advisory_unlock_all()").await;

    // A deadlock.
    let (a, b) = (
        "/*advisory:a:<x>*/;SELECT pg_advisory_lock(1001)",
        "/*advisory:b:<y>*/;SELECT pg_advisory_lock(-1002)",
    );
    let mut one = logs.connect("one").await;
    does(&mut one, a).await;
    let mut two = logs.connect("two").await;
    does(&mut two, b).await;
    let first = pid_of(&mut one).await;
    pids.push((first, "one"));
    let waiting = spawn(async move {
        drop(one.batch_execute(b).await);
        one
    });
    let still_waiting = STILL_WAITING.replace("{pid}", &first.to_string());
    logs.until_logged(&still_waiting, 1).await;
    two.batch_execute(a).await.unwrap_err();
    drop(two);
    drop(waiting.await.unwrap());
    logs.until_logged(&format!("process {first} acquired"), 1)
        .await;
    pids
}

async fn json(path: &Path, words: &[&str]) -> Value {
    let path = path.to_str().unwrap();
    let said = log(&[&[path, "--format", "json"], words].concat())
        .await
        .fine();
    serde_json::from_str(&said.out).unwrap()
}

/// The entry of a lock.
fn lock<'v>(value: &'v Value, key: &Value) -> &'v Value {
    let mut locks = value["locks"].as_array().unwrap().iter();
    locks
        .find(|lock| lock["number"] == *key || lock["pair"] == *key)
        .unwrap_or_else(|| panic!("{key}: {value:#}"))
}

/// Both sides of each deadlock have their locks.
fn check_deadlocks(format: &str, value: &Value, pids: &[(i32, &str)]) {
    let deadlocks = value["deadlocks"].as_array().unwrap();
    assert_eq!(deadlocks.len(), PREFIXES.len(), "{format}");
    for deadlock in deadlocks {
        let names = deadlock["sessions"].as_array().unwrap().iter();
        let mut names: Vec<_> = names
            .map(|session| session["lock"]["names"][0]["key"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["a:<x>", "b:<y>"], "{format}");
        assert_eq!(deadlock["victim"], deadlock["sessions"][0]["pid"]);
    }
    // The role and application of a process, if the format contains them.
    if format != "stderr" {
        let (pid, _) = pids.iter().find(|(_, name)| *name == "one").unwrap();
        let mut sessions = deadlocks
            .iter()
            .flat_map(|it| it["sessions"].as_array().unwrap());
        let session = sessions.find(|session| session["pid"] == *pid).unwrap();
        assert_eq!(session["who"], "one (postgres)", "{format}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wait_is_reported_in_each_format_and_with_each_prefix() {
    if !owns_server() {
        return left_out("a server's log", "the server is somebody's own");
    }
    let logs = Logging::start().await;
    let mut admin = logs.connect("admin").await;
    let mut pids = Vec::new();
    for prefix in PREFIXES {
        let set = format!("ALTER SYSTEM SET log_line_prefix = '{prefix}'");
        does(&mut admin, &set).await;
        let verbosity = if pids.is_empty() {
            "verbose"
        } else {
            "default"
        };
        let set = format!("ALTER SYSTEM SET log_error_verbosity = {verbosity}");
        does(&mut admin, &set).await;
        does(&mut admin, "SELECT pg_reload_conf()").await;
        // The next connection has it.
        pids.extend(scenario(&logs).await);
    }
    drop(admin);
    let artifact = booking_service();
    let files = logs.files();
    assert!(files.len() >= 2, "{files:?}");
    let rounds = PREFIXES.len();
    for (format, path) in files {
        let value = json(&path, &["--artifact", &artifact]).await;
        for (key, name, waits, cancelled, deadlocks) in [
            (CLEANUP.into(), "42424242", rounds, 0, 0),
            (
                serde_json::json!([7, -3]),
                "pair:<a>",
                2 * rounds,
                2 * rounds,
                0,
            ),
            (72_707_369.into(), "72707369", rounds, rounds, 0),
            (1001.into(), "a:<x>", rounds, 0, rounds),
            ((-1002).into(), "b:<y>", rounds, 0, rounds),
        ] {
            let lock = lock(&value, &key);
            assert_eq!(lock["names"][0]["key"], name, "{format}: {lock:#}");
            assert_eq!(lock["waits"], waits, "{format}: {lock:#}");
            assert_eq!(lock["cancelled"], cancelled, "{format}: {lock:#}");
            assert_eq!(lock["deadlocks"], deadlocks, "{format}: {lock:#}");
        }
        let cleanup = lock(&value, &CLEANUP.into());
        assert_eq!(cleanup["names"][0]["name"], "idempotency-cleanup");
        assert!(cleanup["longest_ms"].as_u64().unwrap() >= 50, "{cleanup:#}");
        assert!(cleanup["total_ms"].as_u64() >= cleanup["longest_ms"].as_u64());
        let holders = cleanup["holders"].as_array().unwrap();
        assert_eq!(holders.len(), rounds, "{format}: {cleanup:#}");
        for (pid, _) in pids.iter().filter(|(_, name)| *name == "cleanup-job") {
            assert!(holders.iter().any(|holder| holder["pid"] == *pid));
        }
        let given_up = lock(&value, &serde_json::json!([7, -3]));
        assert!(
            given_up["longest_ms"].as_u64().unwrap() >= 300,
            "{given_up:#}"
        );
        assert_eq!(
            lock(&value, &72_707_369.into())["names"][0]["name"],
            "Prisma Migrate"
        );
        assert_eq!(
            value["locks"].as_array().unwrap().len(),
            5,
            "{format}: {value:#}"
        );
        assert_eq!(value["not_over"], 0, "{format}");
        check_deadlocks(format, &value, &pids);
        let table = log(&[path.to_str().unwrap(), "--artifact", &artifact]).await;
        let summary = table.out.lines().last().unwrap();
        let counts = format!(
            "{} waits for 5 locks: {} cancelled, {rounds} deadlocks; ",
            6 * rounds,
            3 * rounds
        );
        assert_starts(&summary, &counts);
        assert_has_all(
            &table.out,
            &[
                "cargo advisory key --find NUMBER",
                "`monitor::show(Shown::Key)`",
            ],
        );
        assert_has(&table.out, "\nidempotency-cleanup (42424242) ");
    }
}
