//! The tables of the page: the runs next to each other, as ranges.

use serde_json::Value;

/// The transport, connections, keys and delay of each column.
const COLUMNS: [(&str, u64, &str, u64, &str); 7] = [
    ("unix", 1, "distinct", 0, "socket, 1"),
    ("unix", 16, "distinct", 0, "socket, 16"),
    ("unix", 16, "hot", 0, "socket, 16, one key"),
    ("tcp", 1, "distinct", 0, "TCP, 1"),
    ("tcp", 16, "distinct", 0, "TCP, 16"),
    ("tcp", 1, "distinct", 2, "2 ms, 1"),
    ("tcp", 16, "distinct", 2, "2 ms, 16"),
];

fn rows<'r>(run: &'r Value, of: &str) -> impl Iterator<Item = &'r Value> {
    run[of].as_array().into_iter().flatten()
}

pub(crate) fn text<'v>(value: &'v Value, of: &str) -> &'v str {
    value[of].as_str().unwrap_or_default()
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
            let (one, other) = (&way[of][0], &way[of][1]);
            let (one, other) = (one.as_f64().unwrap_or(0.0), other.as_f64().unwrap_or(0.0));
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
        let trips = way["round_trips"].as_f64().unwrap_or(0.0);
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
fn range(values: &[f64], decimals: usize) -> String {
    let (low, high) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(*value), high.max(*value))
        });
    let [low, high] = [low, high].map(|value| format!("{value:.decimals$}"));
    match values {
        [] => String::new(),
        _ if low == high => low,
        _ => format!("{low}–{high}"),
    }
}

/// Whether a lock of ours is compared with a rival's.
fn is_comparison(case: &Value) -> bool {
    text(case, "case").contains("lock, query")
}

pub(crate) fn ratios(runs: &[Value]) -> String {
    let columns = COLUMNS.map(|column| column.4).join(" | ");
    let lines = "| --- ".repeat(COLUMNS.len());
    let mut table = vec![format!("| over | {columns} |\n| --- {lines}|")];
    let all = || {
        let cases = runs.iter().flat_map(|run| rows(run, "cases"));
        cases.filter(|case| is_comparison(case))
    };
    for rival in distinct(all(), "rival") {
        let cells = COLUMNS.map(|(transport, connections, keys, delay, _)| {
            let of_cell = all().filter(|case| {
                text(case, "rival") == rival
                    && text(case, "transport") == transport
                    && case["connections"] == connections
                    && text(case, "keys") == keys
                    && case["delay_ms"] == delay
            });
            let ratios: Vec<f64> = of_cell.filter_map(|case| case["ratio"].as_f64()).collect();
            range(&ratios, 2)
        });
        table.push(format!("| {rival} | {} |", cells.join(" | ")));
    }
    table.join("\n")
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

/// Whether jobs are claimed and completed.
fn is_of_jobs(case: &Value) -> bool {
    text(case, "case").starts_with("job: ")
}

/// A row for each table and number of workers, with a column for each rival.
pub(crate) fn jobs(runs: &[Value]) -> String {
    let all = || {
        let cases = runs.iter().flat_map(|run| rows(run, "cases"));
        cases.filter(|case| is_of_jobs(case))
    };
    let rivals = distinct(all(), "rival");
    let mut table = vec![format!(
        "| | workers | {} |\n| --- | ---: {}|",
        rivals.join(" | "),
        "| ---: ".repeat(rivals.len())
    )];
    let mut seen = Vec::new();
    for case in all() {
        let row = ["case", "note", "connections"].map(|of| &case[of]);
        if seen.contains(&row) {
            continue;
        }
        let ratios = rivals.iter().map(|rival| {
            let same = all().filter(|case| {
                ["case", "note", "connections"].map(|of| &case[of]) == row
                    && text(case, "rival") == *rival
            });
            let ratios: Vec<f64> = same.filter_map(|case| case["ratio"].as_f64()).collect();
            range(&ratios, 2)
        });
        let per = if text(case, "case").ends_with("per") {
            "`per`, "
        } else {
            ""
        };
        table.push(format!(
            "| {per}{} | {} | {} |",
            text(case, "note"),
            case["connections"],
            ratios.collect::<Vec<_>>().join(" | ")
        ));
        seen.push(row);
    }
    if seen.is_empty() {
        return "Not recorded yet.".to_owned();
    }
    table.join("\n")
}

/// The other cases that do not compare our lock with a rival's.
pub(crate) fn cases(runs: &[Value]) -> String {
    let mut table = head(
        "| case | connections | operations a second | over | ratio |\n| --- | ---: | ---: | --- | ---: |",
    );
    let all = || {
        runs.iter()
            .flat_map(|run| rows(run, "cases"))
            .filter(|case| !is_comparison(case) && !is_of_jobs(case))
    };
    let mut seen: Vec<[&Value; 4]> = Vec::new();
    for case in all() {
        let row = ["case", "note", "connections", "rival"].map(|of| &case[of]);
        if !seen.contains(&row) {
            seen.push(row);
        }
    }
    for row in seen {
        let of = |what: &str| {
            let values = all()
                .filter(|case| ["case", "note", "connections", "rival"].map(|of| &case[of]) == row);
            values
                .filter_map(|case| case[what].as_f64())
                .collect::<Vec<_>>()
        };
        let [case, note, _, rival] = row.map(|value| value.as_str().unwrap_or_default());
        let (speed, ratio, connections) = (range(&of("ops"), 0), range(&of("ratio"), 2), row[2]);
        table.push(format!(
            "| {case}, {note} | {connections} | {speed} | {rival} | {ratio} |"
        ));
    }
    table.join("\n")
}

pub(crate) fn latency(runs: &[Value]) -> String {
    let mut table = head(
        "| milliseconds | 50 % | 99 % | 99.9 % | first calls |\n| --- | ---: | ---: | ---: | ---: |",
    );
    let all = || {
        runs.iter()
            .flat_map(|run| rows(&run["curves"]["latency"], "sides"))
    };
    for name in distinct(all(), "name") {
        let of = |time: fn(&Value) -> &Value| {
            let times = all().filter(|side| text(side, "name") == name);
            range(
                &times
                    .filter_map(|side| time(side).as_f64())
                    .collect::<Vec<_>>(),
                2,
            )
        };
        table.push(format!(
            "| {} | {} | {} | {} | {} |",
            code(name),
            of(|side| &side["ms"][0]),
            of(|side| &side["ms"][4]),
            of(|side| &side["ms"][5]),
            of(|side| &side["first_ms"])
        ));
    }
    table.join("\n")
}

pub(crate) fn waits(runs: &[Value]) -> String {
    let mut table = head(
        "| milliseconds | waits: 50 % | 99 % | longest | turns of a caller | another key: 50 % | 99 % |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    );
    let all = || runs.iter().flat_map(|run| rows(run, "waits"));
    for (has_queue, name) in [(true, "`queue = 1_000`"), (false, "no `queue`")] {
        let values = |of: &str, what: &str| {
            let rows = all().filter(|row| row["queue"] == has_queue);
            rows.filter_map(|row| row[of][what].as_f64())
                .collect::<Vec<_>>()
        };
        let ms = |of: &str, what: &str| {
            let times: Vec<f64> = values(of, what).iter().map(|time| time / 1_000.0).collect();
            range(&times, 1)
        };
        // In each run, since they are as many as the run had time for.
        let turns = values("turns_of_a_caller", "min").into_iter();
        let turns = turns.zip(values("turns_of_a_caller", "max"));
        let turns: Vec<String> = turns
            .map(|(least, most)| range(&[least, most], 0))
            .collect();
        table.push(format!(
            "| {name} | {} | {} | {} | {} | {} | {} |",
            ms("wait_us", "p50"),
            ms("wait_us", "p99"),
            ms("wait_us", "max"),
            turns.join(", "),
            ms("other_key_us", "p50"),
            ms("other_key_us", "p99"),
        ));
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
    let columns = [1, 10, 50]
        .map(|concurrency| (true, concurrency))
        .into_iter()
        .chain([1, 10, 50].map(|concurrency| (false, concurrency)));
    let columns: Vec<(bool, u64)> = columns.collect();
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
        let cells = columns.iter().map(|(fsync, concurrency)| {
            of(*fsync, *concurrency).map_or_else(String::new, |row| {
                let rate = thousands(row["jobs_a_second"].as_f64().unwrap_or_default());
                match row["over_graphile_worker"].as_f64() {
                    Some(ratio) => format!("{rate} ({ratio:.2})"),
                    None => rate,
                }
            })
        });
        let spent = of(true, 10).map_or_else(String::new, |row| {
            let of = |side: &str| row[side].as_f64().unwrap_or_default();
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
    table.push(String::new());
    for name in distinct(all(), "queue") {
        if let Some(row) = all().find(|row| text(row, "queue") == name) {
            table.push(format!("- *{name}*: {}.", text(row, "settings")));
        }
    }
    table.push(format!("\n{}.", origin(run)));
    table.join("\n")
}

/// The same with an old snapshot open on the server, and without.
pub(crate) fn old_snapshot(runs: &[Value]) -> String {
    let newest = runs.iter().rev().find(|run| !run["queue"].is_null());
    let all = || {
        let rows = newest.into_iter().flat_map(|run| rows(run, "queue"));
        rows.filter(|row| row["jobs"] == 200_000)
    };
    let mut table = head(
        "| jobs a second | without | with | with, over without |\n| --- | ---: | ---: | ---: |",
    );
    for name in distinct(all(), "queue") {
        let of = |is_open: bool| {
            let mut rows = all().filter(|row| text(row, "queue") == name);
            let row = rows.find(|row| row["old_snapshot"] == is_open);
            row.and_then(|row| row["jobs_a_second"].as_f64())
        };
        if let (Some(without), Some(with)) = (of(false), of(true)) {
            table.push(format!(
                "| {name} | {} | {} | {:.2} |",
                thousands(without),
                thousands(with),
                with / without
            ));
        }
    }
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
    words.extend(libraries.map(str::to_owned));
    if let Some(busy) = run["others_busy"].as_u64() {
        words.push(format!("{busy} % of the other processors' time used"));
    }
    words.extend(run["note"].as_str().map(str::to_owned));
    words.join(", ")
}
