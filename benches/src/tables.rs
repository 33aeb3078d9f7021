//! The tables of the page: the runs next to each other, as ranges.

use serde_json::Value;

/// The transport, connections and keys of each column.
const COLUMNS: [(&str, u64, &str, &str); 5] = [
    ("unix", 1, "distinct", "socket, 1"),
    ("unix", 16, "distinct", "socket, 16"),
    ("unix", 16, "hot", "socket, 16, one key"),
    ("tcp", 1, "distinct", "2 ms, 1"),
    ("tcp", 16, "distinct", "2 ms, 16"),
];

fn rows<'r>(run: &'r Value, of: &str) -> impl Iterator<Item = &'r Value> {
    run[of].as_array().into_iter().flatten()
}

fn all_rows<'r>(runs: &'r [Value], of: &str) -> Vec<&'r Value> {
    runs.iter().flat_map(|run| rows(run, of)).collect()
}

pub(crate) fn text<'v>(value: &'v Value, of: &str) -> &'v str {
    value[of].as_str().unwrap_or_default()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn head(lines: &str) -> Vec<String> {
    vec![lines.to_owned()]
}

/// Each part from the newest run that counted its instructions.
pub(crate) fn instructions(runs: &[Value]) -> String {
    let all = || runs.iter().flat_map(|run| rows(run, "instructions"));
    let has = |run: &Value, part: &str| {
        let mut ways = rows(run, "instructions");
        ways.any(|way| text(way, "part") == part)
    };
    let newest = distinct(all(), "part").into_iter().filter_map(|part| {
        let run = runs.iter().rev().find(|run| has(run, part))?;
        Some((part, run))
    });
    let newest: Vec<_> = newest.collect();
    let mut table = head("| way | server | client | round trips |\n| --- | ---: | ---: | ---: |");
    let (mut part_before, mut apart) = ("", 0.0);
    let ways = newest.iter().flat_map(|(part, run)| {
        let ways = rows(run, "instructions");
        ways.filter(|way| text(way, "part") == *part)
    });
    for way in ways {
        let part = text(way, "part");
        if part != part_before {
            table.push(format!("| *{}* | | | |", heading(part)));
        }
        part_before = part;
        let mut count = |of| {
            let (one, other) = (number(&way[of][0]), number(&way[of][1]));
            apart = f64::max(apart, 100.0 * (one - other).abs() / one);
            thousands(f64::midpoint(one, other))
        };
        let (server, client) = (count("server"), count("client"));
        let name = text(way, "way");
        let name = if way["is_ours"] == true {
            format!("**{}**", code(name))
        } else {
            name.to_owned()
        };
        let trips = number(&way["round_trips"]);
        table.push(format!("| {name} | {server} | {client} | {trips} |"));
    }
    table.push(format!(
        "\nCounted twice; the two counts of a way differ by {apart:.2} % at most:\n"
    ));
    let mut origins: Vec<_> = newest.iter().map(|(_, run)| origin(run)).collect();
    origins.dedup();
    table.extend(origins.iter().map(|origin| format!("- {origin}.")));
    table.join("\n")
}

fn heading(part: &str) -> &str {
    match part {
        "transaction" => "transaction-level",
        "session" => "session-level",
        "lease" => "a lease: acquire and release",
        "job" => "a job: claim and complete",
        "job of a tenant" => "a job, one of each tenant at a time",
        part => part,
    }
}

/// An argument, or the attribute itself, as code.
fn code(name: &str) -> String {
    if name.contains('"') || name.starts_with('#') || name.contains('=') {
        format!("`{name}`")
    } else {
        name.to_owned()
    }
}

/// To the nearest hundred, with commas.
fn thousands(count: f64) -> String {
    let mut text = format!("{:.0}", (count / 100.0).round() * 100.0);
    let mut at = text.len();
    while at > 3 {
        at -= 3;
        text.insert(at, ',');
    }
    text
}

/// The minimum and the maximum of all runs.
fn range(mut values: Vec<f64>, decimals: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (values.first(), values.last()) else {
        return String::new();
    };
    let [low, high] = [low, high].map(|value| format!("{value:.decimals$}"));
    if low == high {
        low
    } else {
        format!("{low}–{high}")
    }
}

/// Whether a lock of ours is compared with a rival's.
fn is_comparison(case: &Value) -> bool {
    text(case, "case").contains("lock, query")
}

pub(crate) fn ratios(runs: &[Value]) -> String {
    let columns = COLUMNS.map(|column| column.3).join(" | ");
    let lines = "| --- ".repeat(COLUMNS.len());
    let mut table = vec![format!("| over | {columns} |\n| --- {lines}|")];
    let mut all = all_rows(runs, "cases");
    all.retain(|case| is_comparison(case));
    for rival in distinct(all.iter().copied(), "rival") {
        let cells = COLUMNS.map(|(transport, connections, keys, _)| {
            let is_of_cell = |case: &Value| {
                text(case, "rival") == rival
                    && text(case, "transport") == transport
                    && case["connections"] == connections
                    && text(case, "keys") == keys
                    && case["delay_ms"] == if transport == "tcp" { 2 } else { 0 }
            };
            range(values(&all, is_of_cell, |case| &case["ratio"]), 2)
        });
        table.push(format!("| {rival} | {} |", cells.join(" | ")));
    }
    table.join("\n")
}

/// The numbers of some rows.
fn values(
    rows: &[&Value],
    is_wanted: impl Fn(&Value) -> bool,
    of: impl Fn(&Value) -> &Value,
) -> Vec<f64> {
    let wanted = rows.iter().filter(|row| is_wanted(row));
    wanted.filter_map(|row| of(row).as_f64()).collect()
}

/// Each different text, in the order of its first occurrence.
fn distinct<'v>(values: impl Iterator<Item = &'v Value>, of: &str) -> Vec<&'v str> {
    let mut seen = Vec::new();
    for value in values {
        let text = text(value, of);
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen
}

/// The values of these columns in each different row, in the order of its first occurrence.
fn distinct_rows<'v, const N: usize>(rows: &[&'v Value], of: [&str; N]) -> Vec<[&'v Value; N]> {
    let mut seen = Vec::new();
    for row in rows {
        let row = of.map(|of| &row[of]);
        if !seen.contains(&row) {
            seen.push(row);
        }
    }
    seen
}

fn is_of_jobs(case: &Value) -> bool {
    text(case, "case").starts_with("job: ")
}

/// A row for each table and number of workers, with a column for each rival.
pub(crate) fn jobs(runs: &[Value]) -> String {
    let mut all = all_rows(runs, "cases");
    all.retain(|case| is_of_jobs(case) && text(case, "note") != "100,000 done");
    let rivals = distinct(all.iter().copied(), "rival");
    let (head, lines) = (rivals.join(" | "), "| ---: ".repeat(rivals.len()));
    let mut table = vec![format!("| | workers | {head} |\n| --- | ---: {lines}|")];
    let columns = ["case", "note", "connections"];
    for row in distinct_rows(&all, columns) {
        let ratios = rivals.iter().map(|rival| {
            let is_same =
                |case: &Value| columns.map(|of| &case[of]) == row && text(case, "rival") == *rival;
            range(values(&all, is_same, |case| &case["ratio"]), 2)
        });
        let ratios = ratios.collect::<Vec<_>>().join(" | ");
        let [case, note, workers] = row;
        let is_limited = case.as_str().is_some_and(|case| case.ends_with("per"));
        let per = if is_limited { "`per`, " } else { "" };
        let note = note.as_str().unwrap_or_default();
        table.push(format!("| {per}{note} | {workers} | {ratios} |"));
    }
    table.join("\n")
}

/// The other cases that do not compare our lock with a rival's.
pub(crate) fn cases(runs: &[Value]) -> String {
    let mut table = head(
        "| case | connections | operations a second | over | ratio |\n| --- | ---: | ---: | --- | ---: |",
    );
    let mut all = all_rows(runs, "cases");
    let is_of_page = |case: &Value| {
        !is_comparison(case) && !is_of_jobs(case) && text(case, "note") != "fsync off"
    };
    all.retain(|case| is_of_page(case));
    let columns = ["case", "note", "connections", "rival"];
    for row in distinct_rows(&all, columns) {
        let is_same = |case: &Value| columns.map(|of| &case[of]) == row;
        let speed = range(values(&all, is_same, |case| &case["ops"]), 0);
        let ratio = range(values(&all, is_same, |case| &case["ratio"]), 2);
        let connections = row[2];
        let [case, note, _, rival] = row.map(|value| value.as_str().unwrap_or_default());
        table.push(format!(
            "| {case}, {note} | {connections} | {speed} | {rival} | {ratio} |"
        ));
    }
    table.join("\n")
}

pub(crate) fn waits(runs: &[Value]) -> String {
    let mut table = head(
        "| milliseconds | waits: 50 % | 99 % | longest | turns of a caller | another key: 50 % | 99 % |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    );
    let all = all_rows(runs, "waits");
    for (has_queue, name) in [(true, "`queue = 1_000`"), (false, "no `queue`")] {
        let of = |of: &str, what: &str| {
            values(&all, |row| row["queue"] == has_queue, |row| &row[of][what])
        };
        let ms = |part: &str, what: &str| {
            let times = of(part, what).iter().map(|time| time / 1_000.0).collect();
            range(times, 1)
        };
        // In each run, since they are as many as the run had time for.
        let least = of("turns_of_a_caller", "min").into_iter();
        let turns = least.zip(of("turns_of_a_caller", "max"));
        let turns: Vec<_> = turns
            .map(|(least, most)| range(vec![least, most], 0))
            .collect();
        let cells = [
            ms("wait_us", "p50"),
            ms("wait_us", "p99"),
            ms("wait_us", "max"),
            turns.join(", "),
            ms("other_key_us", "p50"),
            ms("other_key_us", "p99"),
        ];
        table.push(format!("| {name} | {} |", cells.join(" | ")));
    }
    table.join("\n")
}

/// Whole queues, from the newest run of them: jobs a second, and the cost of a thousand.
pub(crate) fn queues(runs: &[Value]) -> String {
    let newest = runs.iter().rev().find(|run| !run["queue"].is_null());
    let Some(run) = newest else {
        return "Not recorded yet.".to_owned();
    };
    let all = || rows(run, "queue").filter(|row| row["old_snapshot"] == false);
    let mut table = head(
        "| jobs a second | fsync on: 1 | 10 | 50 | off: 1 | 10 | 50 | processor time | idle: 50 % | 99 % |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    );
    for name in distinct(all(), "queue") {
        let of = |fsync: bool, concurrency: u64| {
            all().find(|row| {
                text(row, "queue") == name
                    && row["fsync"] == fsync
                    && row["concurrency"] == concurrency
                    && row["jobs"] == 20_000
            })
        };
        let columns = [true, false].map(|fsync| [1, 10, 50].map(|count| of(fsync, count)));
        let cells = columns.into_iter().flatten().map(|row| {
            let Some(row) = row else {
                return String::new();
            };
            let rate = thousands(number(&row["jobs_a_second"]));
            match row["over_graphile_worker"].as_f64() {
                Some(ratio) => format!("{rate} ({ratio:.2})"),
                None => rate,
            }
        });
        let spent = of(true, 10).map_or_else(String::new, |row| {
            let of = |side: &str| number(&row[side]);
            let (client, server) = (of("client_ms_for_1000"), of("server_ms_for_1000"));
            format!("{client:.0} + {server:.0}")
        });
        let idle = rows(run, "queue_idle").find(|row| text(row, "queue") == name);
        let idle = |of: &str| {
            let time = idle.and_then(|row| row[of].as_f64());
            time.map_or_else(String::new, |time| format!("{:.1}", time / 1_000.0))
        };
        table.push(format!(
            "| {name} | {} | {spent} | {} | {} |",
            cells.collect::<Vec<_>>().join(" | "),
            idle("median_us"),
            idle("p99_us")
        ));
    }
    table.push(format!("\n{}.", origin(run)));
    table.join("\n")
}

/// The time, the commit, the server, and the versions of the libraries.
fn origin(run: &Value) -> String {
    let run = &run["run"];
    let mut words = vec![
        format!("{} UTC", text(run, "date")),
        format!("commit {}", text(run, "commit")),
    ];
    if run["is_changed"] == true {
        words.push("with changes".to_owned());
    }
    if let (Some(name), Some(count)) = (run["processor"].as_str(), run["processors"].as_u64()) {
        words.push(format!("{count} × {name}"));
    }
    if let Some(server) = run["server"].as_str() {
        words.push(format!("PostgreSQL {server}"));
    }
    let libraries = rows(run, "libraries").filter_map(Value::as_str);
    let mut more: Vec<_> = libraries.map(str::to_owned).collect();
    if let Some(busy) = run["others_busy"].as_u64() {
        more.push(format!("other processors {busy} % busy"));
    }
    format!("{},\n  {}", words.join(", "), more.join(", "))
}
