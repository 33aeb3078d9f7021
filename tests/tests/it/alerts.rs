//! The alerts and the dashboard name metrics, labels and values that locked calls really emit.

use crate::mails::{Mail, mails, until_empty};
use advisory_runtime::claim::{self, Claimed, Worker};
use advisory_runtime::lease::{Error as LeaseError, Leases, Request as LeaseRequest, Store, Table};
use advisory_runtime::{Error, LockKey, Pool as _, advisory_lease, advisory_lock, lock_key};
use advisory_tests::bookings::{database, execute, insert, run};
use advisory_tests::{assert_error, assert_matches, leases};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

const RULES: &str = include_str!("../../../docs/alerts.yml");
const PAGE: &str = include_str!("../../../docs/alerts.md");
const DASHBOARD: &str = include_str!("../../../docs/dashboard.json");

/// The labels of each metric, with their observed values; with `_bucket` and the like for
/// histograms, as an exporter names them.
#[derive(Default)]
struct Emitted(Mutex<BTreeMap<String, BTreeMap<String, BTreeSet<String>>>>);

struct Nothing;

impl CounterFn for Nothing {
    fn increment(&self, _: u64) {}
    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Nothing {
    fn record(&self, _: f64) {}
}

impl Emitted {
    fn see(&self, key: &Key, suffix: &str) {
        let mut seen = self.0.lock().unwrap();
        let labels = seen.entry(format!("{}{suffix}", key.name())).or_default();
        for label in key.labels() {
            let values = labels.entry(label.key().to_owned()).or_default();
            values.insert(label.value().to_owned());
        }
    }
}

impl Recorder for Emitted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.see(key, "");
        Counter::from_arc(Arc::new(Nothing))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        for suffix in ["_bucket", "_sum", "_count"] {
            self.see(key, suffix);
        }
        Histogram::from_arc(Arc::new(Nothing))
    }
}

#[advisory_lock(key = "alert:<room>", name = "alert", wait = "never")]
async fn never(conn: &mut AsyncPgConnection, room: i64, how: &str) -> Result<(), Error> {
    match how {
        "swallows" => drop(insert(conn, room, "\0").await),
        "commits" => drop(execute(conn, "COMMIT").await),
        _ => {}
    }
    Ok(())
}

#[advisory_lock(key = "alert:<room>", name = "alert", wait = "20ms")]
async fn briefly(conn: &mut AsyncPgConnection, room: i64) -> Result<(), Error> {
    let _ = conn;
    Ok(())
}

#[advisory_lock(key = "alert:<room>", name = "alert", wait = "300ms", queue = 1, conn = pool.connection().await?)]
async fn in_line(pool: &deadpool::Pool<AsyncPgConnection>, room: i64) -> Result<(), Error> {
    let _ = conn;
    Ok(())
}

#[advisory_lease(key = "alert-lease:<room>", name = "alert-lease", ttl = "900ms", renew = "100ms", pool = leases)]
async fn leased<P: Store>(
    leases: &Leases<P>,
    room: i64,
    started: &Notify,
) -> Result<(), LeaseError> {
    started.notify_one();
    pending().await
}

#[advisory_lease(key = "alert-lease:<room>", name = "alert-lease", wait = "never", pool = leases)]
async fn refused<P: Store>(leases: &Leases<P>, room: i64) -> Result<(), LeaseError> {
    Ok(())
}

#[advisory_lease(key = "alert-lease:<room>", name = "alert-lease", wait = "20ms", pool = leases)]
async fn timed_out<P: Store>(leases: &Leases<P>, room: i64) -> Result<(), LeaseError> {
    Ok(())
}

/// Calls with each outcome that an alert names.
async fn calls() {
    let db = database().await;
    let (mut holder, mut one) = (db.connect().await, db.connect().await);
    never(&mut one, 1, "").await.unwrap();
    assert_error!(never(&mut one, 1, "swallows").await, RolledBack);
    assert_error!(never(&mut one, 1, "commits").await, TransactionEnded);

    let mut one = db.connect().await;
    let room = 1;
    let key = lock_key!("alert:<room: int>", name = "alert").key();
    run(&mut holder, &format!("SELECT pg_advisory_lock({key})")).await;
    assert_error!(never(&mut one, 1, "").await, NotAvailable);
    let error = briefly(&mut one, 1).await.unwrap_err();
    assert_error!(error, TimedOut);
    let pool = db.deadpool(3);
    let lines = tokio::join!(in_line(&pool, 1), in_line(&pool, 1), in_line(&pool, 1));
    let errors = [
        lines.0.unwrap_err(),
        lines.1.unwrap_err(),
        lines.2.unwrap_err(),
    ];
    let is_full = |error: &Error| matches!(error, Error::QueueFull { .. });
    assert!(errors.iter().any(is_full), "{errors:?}");

    let db = leases::database().await;
    let leases = Leases::new(db.deadpool(2));
    let started = Notify::new();
    let lost = leased(&leases, 7, &started);
    let take = async {
        started.notified().await;
        leases::expire(&db).await;
        let request = LeaseRequest::rendered("alert-lease:<room>", "alert-lease:7".to_owned());
        leases::orphan(db.url(), &Table::new(), request).await;
    };
    let (lost, ()) = tokio::join!(lost, take);
    let error = lost.unwrap_err();
    assert_matches!(error, LeaseError::Lost { .. });
    for error in [refused(&leases, 7).await, timed_out(&leases, 7).await] {
        let error = error.unwrap_err();
        assert!(error.is_held(), "{error:?}");
    }

    let db = mails(1).await;
    let pool = db.deadpool(2);
    let done = until_empty(&db, "the mail", "completed_at IS NULL");
    let worker = Worker::new(&pool, "worker").until(done);
    let ran = worker.run(async |_: Claimed<Mail>| Ok::<_, claim::Error>(()));
    ran.await.unwrap();
}

/// The metrics in an expression, each with the content of its braces.
fn selectors(text: &str) -> Vec<(&str, &str)> {
    let starts = text
        .match_indices("advisory_")
        .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
    let selector = |(at, _): (usize, &str)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let braces = behind
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        // A `}` inside a value would end the text too early; no value has one.
        (
            &text[at..at + name.len()],
            braces.map_or("", |braces| braces),
        )
    };
    starts.map(selector).collect()
}

/// The labels in `by (…)` and in `label_values(…, …)`.
fn groups(text: &str) -> Vec<&str> {
    let inside = |rest: &'_ str, end: char| rest.find(end).unwrap_or(0);
    let by = text.match_indices("by (").map(|(at, word)| {
        let rest = &text[at + word.len()..];
        &rest[..inside(rest, ')')]
    });
    let of_values = text.match_indices("label_values(").map(|(at, word)| {
        let rest = &text[at + word.len()..];
        rest[..inside(rest, ')')]
            .split_once(", ")
            .map_or("", |(_, label)| label)
    });
    let groups = by.chain(of_values).flat_map(|labels| labels.split(", "));
    groups.collect()
}

#[tokio::test]
async fn alerts_and_dashboard_name_what_is_emitted() {
    let emitted = Emitted::default();
    {
        let _counting = metrics::set_default_local_recorder(&emitted);
        calls().await;
    }
    let mut emitted = emitted.0.into_inner().unwrap();
    // Written by the page's probe, and not by a program.
    let probe = "advisory_probe_exit_code";
    assert!(PAGE.contains(&format!("echo \"{probe} $code\"")));
    emitted.insert(probe.to_owned(), BTreeMap::new());
    for (file, text) in [("alerts.yml", RULES), ("dashboard.json", DASHBOARD)] {
        let text = text.replace("\\\"", "\"");
        let found = selectors(&text);
        assert!(found.len() > 6, "{file}: {found:?}");
        for (metric, braces) in found {
            let labels = emitted
                .get(metric)
                .unwrap_or_else(|| panic!("{file}: `{metric}` is none of {:?}", emitted.keys()));
            for matcher in braces.split(',').filter(|matcher| !matcher.is_empty()) {
                let at = matcher.find(['=', '!']).unwrap();
                let (label, rest) = matcher.split_at(at);
                let values = labels.get(label).unwrap_or_else(|| {
                    panic!("{file}: `{metric}` has no label `{label}`: {labels:?}")
                });
                let value = rest.trim_start_matches(['=', '!', '~']).trim_matches('"');
                for value in value.split('|').filter(|value| !value.starts_with('$')) {
                    assert!(
                        values.contains(value),
                        "{file}: {label}=\"{value}\" is none of {values:?}"
                    );
                }
            }
        }
        for label in groups(&text) {
            let is_emitted = emitted.values().any(|labels| labels.contains_key(label));
            assert!(
                is_emitted || label == "le",
                "{file}: no metric has the label `{label}`"
            );
        }
    }
    // Each of the metrics is on the dashboard.
    for metric in emitted.keys() {
        let base = metric
            .trim_end_matches("_bucket")
            .trim_end_matches("_sum")
            .trim_end_matches("_count");
        assert!(DASHBOARD.contains(base), "{metric}");
    }
}

#[test]
fn each_alert_has_its_row_on_the_page() {
    let alerts: Vec<&str> = RULES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    let rows: Vec<&str> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    assert_eq!(alerts, rows);
    assert_eq!(RULES.matches("expr: |").count(), alerts.len());
}
