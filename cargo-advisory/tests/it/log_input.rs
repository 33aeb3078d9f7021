//! A log is read from any source and from any position, and written as the page shows.

use std::fmt::Write as _;
use std::io::Write;
use std::process::Stdio;

use crate::logging_server::{log, spawn};
use crate::programs::{assert_has, assert_starts, file};

/// Any role can write such lines with `RAISE LOG`.
#[tokio::test(flavor = "multi_thread")]
async fn waits_that_add_up_to_more_than_time_are_summed_up() {
    let longest = "2026-11-22 07:06:19.026 UTC [3] LOG:  process 3 acquired ExclusiveLock on advisory lock [5,0,42,1] after 10000000000000000000000.000 ms\n";
    let said = log(&[&file("endless.log", longest.repeat(3))])
        .await
        .exits(0);
    assert_has(&said.out, "\n42    3 ");
}

/// Piped input is reported like a file. Input that is not a log is refused.
#[tokio::test(flavor = "multi_thread")]
async fn the_standard_input_is_a_log_and_a_program_is_not() {
    let text = "2026-11-22 07:06:19.026 UTC [3] LOG:  process 3 still waiting for ShareLock on advisory lock [5,0,42,1] after 1003.570 ms\n\
                2026-11-22 07:06:19.026 UTC [3] DETAIL:  Processes holding the lock: 1, 2. Wait queue: 3.\n\
                2026-11-22 07:06:19.026 UTC [3] STATEMENT:  SELECT pg_advisory_lock_shared(42)";
    let path = file("one-wait.log", text);
    let of_file = log(&[&path]).await.exits(0);
    assert_has(&of_file.out, "\n42    1 ");
    assert_has(
        &of_file.out,
        "1 wait for 1 lock: 0 cancelled, 1 not over at the end, 0 deadlocks; 1 message",
    );
    for words in [&["log"][..], &["log", "-"]] {
        let mut piped = spawn(words, Stdio::piped());
        let mut pipe = piped.stdin.take().unwrap();
        pipe.write_all(text.as_bytes()).unwrap();
        drop(pipe);
        let said = piped.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), of_file.out);
    }
    let nothing = log(&[&file("no.log", "a line of something else\n")])
        .await
        .exits(2);
    assert_eq!(nothing.out, "");
    assert_has(&nothing.err, "no message of a PostgreSQL server");
    let line = "2026-11-22 07:06:19.026 UTC [3] LOG:  checkpoint starting: time\n";
    let quiet = log(&[&file("quiet.log", line)]).await.exits(0);
    assert_starts(&quiet.out, "no waits for advisory locks in 1 message, ");
    assert_has(&quiet.out, "`log_lock_waits`");
}

/// A record of csvlog with a statement of two lines.
fn csv(pid: u32, message: &str, statement: &str) -> String {
    let ends = ",,,,,,,,0";
    format!(
        "2026-11-22 07:06:19.026 UTC,\"app\",\"shop\",{pid},\"[local]\",6b.{pid},1,\"SELECT\",2026-11-22 07:06:18 UTC,4/15,0,LOG,00000,\"{message}\",,,,,,\"{statement}\nFROM \"\"t\"\"\",,,\"web\",\"client backend\"{ends}\n"
    )
}

/// A file can be cut where the disk was full, where the server crashed, or where reading began; the
/// rest is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_cut_inside_a_record_is_read_from_the_next() {
    let acquired = |pid: u32| {
        let message = format!(
            "process {pid} acquired ExclusiveLock on advisory lock [5,0,42,1] after 1003.570 ms"
        );
        csv(pid, &message, "SELECT pg_advisory_lock(42)")
    };
    let (one, two, three) = (acquired(1), acquired(2), acquired(3));
    let stderr = "2026-11-22 07:06:19.026 UTC [4] LOG:  process 4 acquired ExclusiveLock on advisory lock [5,0,42,1] after 1003.570 ms\n";
    let json = "{\"timestamp\":\"2026-11-22 07:06:19.026 UTC\",\"pid\":5,\"error_severity\":\"LOG\",\"message\":\"process 5 acquired ExclusiveLock on advisory lock [5,0,42,1] after 1003.570 ms\"}\n";
    let from = |part: &str| format!("{}{two}{three}", &one[one.find(part).unwrap()..]);
    let until = |part: &str| format!("{}\n{two}{three}", &one[..one.find(part).unwrap()]);
    for (text, waits) in [
        // It begins inside the statement, or a line, or ends inside the statement, or the message.
        (from("FROM"), 2),
        (from("acquired"), 2),
        (until("FROM"), 2),
        (until("advisory"), 2),
        // Each format, and a record that only the end of the input completes.
        (format!("{one}{stderr}{json}{two}{json}"), 5),
        (format!("{one}{stderr}"), 2),
    ] {
        let path = file("cut.log", &text);
        let said = log(&[&path]).await;
        assert_has(&said.out, &format!("\n42    {waits} "));
        let mut following = spawn(&["log", "--follow", "-"], Stdio::piped());
        let mut pipe = following.stdin.take().unwrap();
        pipe.write_all(text.as_bytes()).unwrap();
        drop(pipe);
        let said = following.wait_with_output().unwrap();
        let out = String::from_utf8(said.stdout).unwrap();
        assert_eq!(out.lines().count(), waits, "{text}");
    }
}

/// Text in a log cannot control the terminal.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_steers_no_terminal() {
    let nasty = "\u{1b}]0;owned\u{7} \u{202e}";
    let mut text = String::new();
    let prefix = format!("2026-11-22 07:06:19.026 UTC [3] user={nasty},app={nasty} ");
    write!(
        text,
        "{prefix}ERROR:  deadlock detected\n\
         {prefix}DETAIL:  Process 3 waits for ExclusiveLock on advisory lock [5,0,42,1]; blocked by process 4.\n\
         \tProcess 4 waits for ShareLock on {nasty}; blocked by process 3.\n\
         \tProcess 3: /*advisory:{nasty}*/SELECT pg_advisory_lock(42)\n"
    )
    .unwrap();
    let path = file("nasty.log", text);
    for words in [&[][..], &["--format", "json"]] {
        let said = log(&[&[&*path], words].concat()).await.exits(0);
        let steers = |c: &char| *c != '\n' && (c.is_control() || *c == '\u{202e}');
        assert_eq!(said.out.chars().find(steers), None, "{}", said.out);
        assert_has(&said.out, "owned");
    }
}

/// The waits of the page's sample: the time of day, the process and its role, the lock, how it
/// ended, and after how many milliseconds.
const SAMPLE: [(&str, &str, u32, &str, u32); 8] = [
    ("06:12:02.004", "4702", 72_707_369, "acquired", 3_000),
    ("06:30:00.000", "4712", 42, "acquired", 12_000),
    ("06:31:00.000", "4712", 42, "acquired", 5_000),
    ("06:32:00.000", "4712", 42, "acquired", 4_000),
    ("06:33:00.000", "4712", 42, "acquired", 3_000),
    ("06:34:00.000", "4712", 42, "acquired", 2_000),
    ("06:35:00.000", "4712", 42, "cancelled", 4_000),
    ("07:06:19.711", "4712", 42, "cancelled", 1_000),
];

/// The sample on the page is the command's output for a log of these events.
#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_the_page_is_what_is_printed() {
    let mut text = String::new();
    for (time, pid, key, end, waited) in SAMPLE {
        let (holder, comment) = if key == 42 {
            ("4711", "/*advisory:booking:<id>*/;")
        } else {
            ("4630", "")
        };
        let prefix = format!("2026-11-22 {time} UTC [{pid}] user=app,app=web ");
        let lock = format!("ExclusiveLock on advisory lock [5,0,{key},1]");
        let after = if end == "cancelled" { waited } else { 1_000 };
        write!(
            text,
            "{prefix}LOG:  process {pid} still waiting for {lock} after {after}.000 ms\n\
             {prefix}DETAIL:  Process holding the lock: {holder}. Wait queue: {pid}.\n\
             {prefix}STATEMENT:  {comment}SELECT pg_advisory_lock({key})\n"
        )
        .unwrap();
        let last = match end {
            "cancelled" => "ERROR:  canceling statement due to lock timeout".to_owned(),
            _ => format!("LOG:  process {pid} acquired {lock} after {waited}.000 ms"),
        };
        writeln!(text, "{prefix}{last}").unwrap();
    }
    text.push_str("2026-11-22 07:06:20.000 UTC [4711] user=app,app=worker LOG:  disconnection\n");
    let said = log(&[&file("sample.log", text)]).await;
    let (table, _) = said.out.split_once("\n\n").unwrap();
    let page = include_str!("../../README.md");
    assert_has(&page, &format!("```text\n{table}\n```"));
}
