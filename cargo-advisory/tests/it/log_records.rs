//! The records of a log are read in each format, and with each common prefix.

use crate::logging_server::log_json;
use crate::programs::{advisory, assert_has, cases, file};

#[test]
fn a_time_is_found_at_any_position() {
    let table = "\
2026-11-22 07:06:19.026 UTC [1] | 2026-11-22 07:06:19.026 UTC
2026-11-22 07:06:19 CET:[local]: | 2026-11-22 07:06:19 CET
pid=12,2026-11-22 07:06:19.5 +02 x | 2026-11-22 07:06:19.5 +02
2026-11-22 07:06:19.026 | 2026-11-22 07:06:19.026
2026-11-22 | none
é2026 | none
no time [13595] at all | none
07:06:19 | none
2026-1-2 7:06:19 and more | none
2026-13-22 07:06:19 | none";
    for [prefix, time] in cases(table) {
        let text = format!("{prefix} LOG:  checkpoint starting: time\n");
        let value = log_json("log-time.log", &text);
        assert_eq!(value["first"].as_str().unwrap_or("none"), time, "{prefix}");
    }
}

/// A prefix of the process 13595, and its application, user and database. An application can have
/// spaces in its name.
const PREFIXES: &str = "\
2026-11-22 07:06:19.026 UTC [13595] => none
2026-11-22 07:06:19 UTC [13595-7] => none
2026-11-22 07:06:19 UTC [13595]»=> none
2026-11-22 07:06:19 UTC [13595]: [7-1] user=app,db=shop,app=booking,client=10.0.0.7 => booking (app) in shop
2026-11-22 07:06:19 UTC:10.0.0.7(4711):app@shop:[13595]:=> app in shop
2026-11-22 07:06:19.026 UTC [13595] app@shop => app in shop
time=2026-11-22 07:06:19.026 UTC, pid=13595, db=shop, user=app: => app: in shop
Nov 22 07:06:19 db1 postgres[13595]: [5-1] 2026-11-22 07:06:19.026 UTC => none
[13595]: [7-1] user=app,db=shop,app=nightly job, part 2,client=10.0.0.7 => nightly job, part 2 (app) in shop
[13595] user=app db=shop app=nightly job client=10.0.0.7 => nightly job (app) in shop
[13595] app=nightly job => nightly job
app=psql pid=13595 => psql
[13595] app=nightly job 10.0.0.7(4711) app@shop => nightly job (app) in shop
app=DBeaver 24.1 - Main <shop> [13595] => DBeaver 24.1 - Main <shop>
[13595] app=web,10.0.0.7 => web
application=cargo advisory|[13595] => cargo advisory
[13595] user=app,app=,client=10.0.0.7 => app";

/// A message whose detail goes on with and without a tab, after the prefix `P`.
const DEADLOCK: &str = "\
PERROR:  deadlock detected
PDETAIL:  Process 13595 waits for ShareLock on advisory lock [5,0,9,1]; blocked by process 2.
\tProcess 2 waits for ShareLock on advisory lock [5,0,8,1]; blocked by process 13595.
\tProcess 13595: SELECT
\tERROR:  no tag, for it begins with a tab
without a tab
PHINT:  See it.
\tmore of that
PSTATEMENT:  SELECT 'LOG:  x'
PLOG:  next
";

#[test]
fn common_prefixes_are_read() {
    let deadlock = format!("\n{DEADLOCK}");
    for line in PREFIXES.lines() {
        let (prefix, names) = line.split_once("=> ").unwrap();
        let text = deadlock.replace("\nP", &format!("\n{prefix}"));
        // `Process 13595` follows a tab.
        let value = log_json("log-prefixes.log", &text[1..]);
        assert_eq!(value["messages"], 2, "{prefix}");
        assert_eq!(value["first"].is_string(), prefix.contains("2026"));
        let deadlock = &value["deadlocks"][0];
        assert_eq!(deadlock["victim"], 13_595, "{prefix}");
        let statement = "SELECT\nERROR:  no tag, for it begins with a tab\nwithout a tab";
        assert_eq!(deadlock["sessions"][0]["statement"], statement);
        let who = deadlock["sessions"][0]["who"].as_str().unwrap_or("none");
        let database = value["locks"][0]["database"].as_str();
        let database = database.map_or_else(String::new, |name| format!(" in {name}"));
        assert_eq!(format!("{who}{database}"), names, "{prefix}");
    }
}

/// Quotes inside a quoted value of a record are doubled.
#[test]
fn a_quotation_of_a_csv_record_is_none() {
    let time = "2026-11-22 07:06:19.026 UTC";
    let start =
        "13595,\"[local]\",6b.35,1,\"SELECT waiting\",2026-11-22 07:06:18 UTC,4/15,0,LOG,00000";
    for (record, count) in [
        (
            format!("{time},\"po\"\"st\",\"shop\",{start},\"process 1\",\"Process holding\nmore\""),
            1,
        ),
        (format!("{time},,,7,,6b.35,1,,{time},,0,LOG,00000,\"a\""), 1),
        (format!("{time},\"a\",\"b\",c"), 0),
        (format!("{time},app LOG,  a"), 0),
    ] {
        for (text, count) in [(record.clone(), count), (record.replace('"', "\"\""), 0)] {
            let path = file("log-quotation.csv", &text);
            let said = advisory(&["log", &path]);
            assert_eq!(said.code, Some(if count == 0 { 2 } else { 0 }), "{text}");
            assert_has(&said.out, if count == 0 { "" } else { " in 1 message" });
        }
    }
}
