//! Each wait in a log is counted once, at its lock, however it ended.

use serde_json::{Value, json};

use crate::logging_server::log_json;
use crate::programs::cases;

/// A log in which messages of the process 3 about locks are shortened: `WAITS [5,0,9,1]`.
fn read(name: &str, text: &str) -> Value {
    let waits = "LOG:  process 3 still waiting for ShareLock on advisory lock";
    let gets = "LOG:  process 3 acquired ShareLock on advisory lock";
    log_json(name, &text.replace("WAITS", waits).replace("GETS", gets))
}

fn locks(value: &Value) -> &[Value] {
    value["locks"].as_array().unwrap()
}

/// The log lacks the end of the first wait, so the next one is another wait.
#[test]
fn each_wait_is_counted_even_if_the_end_of_another_is_missing() {
    // The waits, those that were cancelled, their time, and those that are not over.
    let table = "\
4.000 WAITS [5,0,9,1] after 4000.0 ms; 5.000 GETS [5,0,9,1] after 5000.0 ms | 1 0 5000 0
8.000 WAITS [5,0,9,1] after 1000.0 ms | 2 0 1000 1
8.000 WAITS [5,0,8,1] after 1000.0 ms | 2 0 1000 1
9.000 GETS [5,0,9,1] after 1500.0 ms | 2 0 2500 0
1.500 LOG:  duration: 3 ms | 1 0 1000 0
8.000 ERROR:  duplicate key value violates unique constraint | 1 0 1000 0
3.026 ERROR:  canceling statement due to lock timeout | 1 1 3026 0";
    for [events, counts] in cases(table) {
        let first = "1.000 WAITS [5,0,9,1] after 1000.0 ms";
        let events = [first].into_iter().chain(events.split("; "));
        let lines = events.map(|event| {
            let (second, message) = event.split_once(' ').unwrap();
            format!("2026-11-22 07:06:0{second} UTC [3] {message}\n")
        });
        let value = read("log-waits.log", &lines.collect::<String>());
        let sum = |member: &str| {
            let counts = locks(&value).iter().map(|lock| lock[member].as_u64());
            counts.flatten().sum::<u64>()
        };
        let [waits, cancelled, time] = ["waits", "cancelled", "total_ms"].map(sum);
        let found = format!("{waits} {cancelled} {time} {}", value["not_over"]);
        assert_eq!(found, counts, "{value:#}");
    }
}

#[test]
fn a_holder_is_counted_once_for_each_wait() {
    // The wait of 5 is only in the deadlock, and that of 8 for another lock.
    let text = "\
[3] WAITS [5,0,9,1] after 1000.0 ms
[3] DETAIL:  Process holding the lock: 7. Wait queue: 3.
[3] WAITS [5,0,9,1] after 2000.0 ms
[3] DETAIL:  Processes holding the lock: 7, 8. Wait queue: 3.
[4] LOG:  process 4 still waiting for ShareLock on advisory lock [5,0,9,1] after 1000.0 ms
[4] DETAIL:  Process holding the lock: 8. Wait queue: 4.
[5] ERROR:  deadlock detected
[5] DETAIL:  Process 5 waits for ShareLock on advisory lock [5,0,9,1]; blocked by process 8.
\tProcess 8 waits for ShareLock on advisory lock [5,0,10,1]; blocked by process 3.
\tProcess 3 waits for ShareLock on advisory lock [5,0,9,1]; blocked by process 8.
";
    let value = read("log-holders.log", text);
    let counts = |lock: &Value| {
        let holders = lock["holders"].as_array().unwrap().iter();
        let holders = holders.map(|it| format!(" {}:{}", it["pid"], it["waits"]));
        let (number, holders) = (&lock["number"], holders.collect::<String>());
        format!("{number} {} {}{holders}", lock["waits"], lock["deadlocks"])
    };
    let found: Vec<String> = locks(&value).iter().map(counts).collect();
    assert_eq!(found, ["9 3 2 7:1 8:3", "10 1 1 3:1"]);
    // The victim's wait is over.
    assert_eq!(
        (&value["messages"], &value["not_over"]),
        (&json!(4), &json!(2))
    );
}

/// An error lacks the database's number, and an equal key in another database is another lock.
#[test]
fn a_short_wait_is_counted_with_the_long_ones_of_its_database() {
    for prefixes in [&["[3] "][..], &["[3] db=a ", "[3] db=b "]] {
        let short = "{}ERROR:  canceling statement due to lock timeout\n{}STATEMENT:  SELECT pg_advisory_lock(9)\n";
        let text = prefixes.iter().enumerate().map(|(nth, prefix)| {
            let long = format!("{{}}GETS [{},0,9,1] after 1000.0 ms\n", nth + 5);
            [short, &long, short].concat().replace("{}", prefix)
        });
        let value = read("log-short.log", &text.collect::<String>());
        let counts = locks(&value).iter();
        let counts = counts.map(|lock| (lock["waits"].as_u64(), lock["cancelled"].as_u64()));
        let counts: Vec<_> = counts.collect();
        assert_eq!(counts, vec![(Some(3), Some(2)); prefixes.len()]);
    }
}

#[test]
fn a_wait_at_a_rearranged_queue_is_read_and_other_messages_are_not() {
    let text = "\
[3] LOG:  process 3 avoided deadlock for ExclusiveLock on advisory lock [5,7,4294967293,2] by rearranging queue order after 1003.570 ms
[3] DETAIL:  Processes holding the lock: 1, 2. Wait queue: 3.
[3] LOG:  process 3 still waiting for ShareLock on transaction 770 after 1000.1 ms
[3] WAITS [5,0,42] after 1000.1 ms
[3] LOG:  process x still waiting for ExclusiveLock on advisory lock [5,0,42,1] after 1 ms
[3] WAITS [5,0,42,1] after -1 ms
[3] LOG:  checkpoint starting: time
";
    let value = read("log-rearranged.log", text);
    assert_eq!(value["messages"], 6);
    let [lock] = locks(&value) else {
        panic!("{value:#}");
    };
    assert_eq!(lock["pair"], json!([7, -3]));
    assert_eq!(lock["longest_ms"], 1_003);
    let holders = lock["holders"].as_array().unwrap();
    assert_eq!(
        (&holders[0]["pid"], &holders[1]["pid"]),
        (&json!(1), &json!(2))
    );
}

#[test]
fn statements_of_a_deadlock_can_have_several_lines_and_any_text() {
    let text = "\
[3] ERROR:  deadlock detected
[3] DETAIL:  Process 1 waits for ExclusiveLock on advisory lock [5,0,1001,1]; blocked by process 2.
\tProcess 2 waits for ShareLock on transaction 770; blocked by process 1.
\tProcess 1: SELECT
\tpg_advisory_lock(1001)
\tProcess 2: UPDATE t SET s = 'Process 9: x'
\tProcess 7: no
\tProcess 1 waits for x; blocked by process 2.
[3] ERROR:  deadlock detected
[3] DETAIL:  Process 1 waits for ShareLock on transaction 770; blocked by process 2.
";
    let value = log_json("log-statements.log", text);
    // The second one is about rows alone.
    assert_eq!(value["deadlocks"].as_array().unwrap().len(), 1);
    let sessions = value["deadlocks"][0]["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    assert_eq!(sessions[0]["statement"], "SELECT\npg_advisory_lock(1001)");
    assert_eq!(sessions[1]["lock"], Value::Null);
    assert_eq!(sessions[1]["blocked_by"], 1);
    let statement = sessions[1]["statement"].as_str().unwrap();
    assert!(statement.ends_with("blocked by process 2."), "{statement}");
}
