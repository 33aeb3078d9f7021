//! The page about the command's JSON names every member, and no other.

use crate::json_members::agrees;
use advisory_tests::futures::spawn_blocking;
use std::io::{Read, Write};
use std::process::Stdio;

use advisory_pattern::Derivation;
use advisory_tests::Database;
use serde_json::Value;

use crate::logging_server::spawn;
use crate::programs::{advisory, booking_service, file, inventory, shop};

fn json(words: &[&str]) -> Value {
    let said = advisory(&[words, &["--format", "json"]].concat());
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

#[test]
fn members_of_the_inventory_and_of_findings() {
    let inventory: Value = serde_json::from_str(&inventory()).unwrap();
    agrees("The inventory", &[], &[inventory]);
    let found = json(&["check", "--artifact", &shop()]);
    assert_eq!(found["findings"][0]["kind"], "collision");
    agrees("Findings", &["The inventory"], &[found]);
}

#[test]
fn members_of_keys() {
    let number = Derivation::Sha256.key("booking:42").to_string();
    let number = format!("--find={number}");
    let find = ["key", &number, "--pattern=booking:<id>", "--values=1..50"];
    let found = json(&find);
    assert_eq!(found["found"][0]["key"], "booking:42");
    let values = [json(&["key", "booking:42"]), json(&["key", "42"]), found];
    agrees("Keys", &[], &values);
}

const LOG: &str = "2026-11-22 07:06:18.026 UTC [3] LOG:  process 3 still waiting for ExclusiveLock on advisory lock [5,0,42424242,1] after 1003.570 ms
2026-11-22 07:06:18.026 UTC [3] DETAIL:  Process holding the lock: 2. Wait queue: 3.
2026-11-22 07:06:19.026 UTC [3] LOG:  process 3 acquired ExclusiveLock on advisory lock [5,0,42424242,1] after 2003.570 ms
2026-11-22 07:06:19.026 UTC [4] ERROR:  canceling statement due to lock timeout
2026-11-22 07:06:19.026 UTC [4] STATEMENT:  SELECT pg_advisory_lock(9)
2026-11-22 07:06:19.026 UTC [5] ERROR:  deadlock detected
2026-11-22 07:06:19.026 UTC [5] DETAIL:  Process 5 waits for ExclusiveLock on advisory lock [5,0,1001,1]; blocked by process 6.
\tProcess 6 waits for ExclusiveLock on advisory lock [5,0,1002,1]; blocked by process 5.
\tProcess 5: SELECT pg_advisory_lock(1001)
\tProcess 6: SELECT pg_advisory_lock(1002)
2026-11-22 07:06:20.026 UTC [5] LOG:  the end
";

#[test]
fn members_of_a_servers_log() {
    let artifact = booking_service();
    let path = file("json-page.log", LOG);
    let value = json(&["log", &path, "--artifact", &artifact]);
    let words = ["log", "-f", "--format", "json", "--artifact", &artifact];
    let mut following = spawn(&words, Stdio::piped());
    following
        .stdin
        .take()
        .unwrap()
        .write_all(LOG.as_bytes())
        .unwrap();
    let mut events = String::new();
    following
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut events)
        .unwrap();
    assert_eq!(following.wait().unwrap().code(), Some(0));
    let events: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["waiting", "acquired", "cancelled", "deadlock"]);
    agrees(
        "The server's log",
        &["Live locks"],
        &[&events[..], &[value]].concat(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_settings() {
    let db = Database::create().await;
    let url = db.url().to_owned();
    let value = spawn_blocking(move || json(&["doctor", "--database-url", &url]))
        .await
        .unwrap();
    agrees("Settings", &[], &[value]);
}
