//! What a lock leaves for observers: spans, events, counters and histograms.
//!
//! Each in a process of its own: whether a span is wanted is remembered for the whole process, by the first call.

use crate::bookings::{database, insert};
use crate::lease;
use crate::migrations::Written;
use advisory_runtime::lease::Leases;
use advisory_runtime::migrations::{KEY, Migrator, Step};
use advisory_runtime::{Error, Key as LockKey, advisory_lock, lock_key, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

/// What was said, in order: `new advisory_lock pattern=…`, `event …`, and where the body's own events were.
#[derive(Clone, Default)]
pub(crate) struct Heard {
    /// As most programs are run.
    pub(crate) only_warnings: bool,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
    next: Arc<AtomicU64>,
    entered: Arc<Mutex<Vec<u64>>>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Times differ from run to run.
        if !field.name().ends_with("_ms") {
            let _: std::fmt::Result = write!(self.0, " {}={value:?}", field.name());
        }
    }
}

impl Heard {
    fn say(&self, line: Line) {
        self.lines.lock().unwrap().push(line.0);
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.lines
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains(text))
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        let is_wanted = !self.only_warnings || *metadata.level() <= tracing::Level::WARN;
        let target = metadata.target();
        is_wanted && (target.starts_with("advisory_runtime") || target == "body")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("new {}", span.metadata().name()));
        span.record(&mut line);
        self.say(line);
        Id::from_u64(AtomicU64::fetch_add(&self.next, 1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line("record".to_owned());
        values.record(&mut line);
        self.say(line);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let depth = self.entered.lock().unwrap().len();
        let mut line = Line(format!("{} in {depth}", event.metadata().level()));
        event.record(&mut line);
        self.say(line);
    }

    fn enter(&self, span: &Id) {
        self.entered.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.entered.lock().unwrap().pop();
    }
}

/// How often each metric was reported, by name and labels.
#[derive(Default)]
struct Counted(Mutex<HashMap<String, Arc<Told>>>);

#[derive(Default)]
struct Told(AtomicU64);

impl CounterFn for Told {
    fn increment(&self, value: u64) {
        AtomicU64::fetch_add(&self.0, value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        AtomicU64::store(&self.0, value, Ordering::Relaxed);
    }
}

impl HistogramFn for Told {
    fn record(&self, value: f64) {
        assert!((0.0..60.0).contains(&value), "{value} seconds");
        self.increment(1);
    }
}

impl Counted {
    fn told(&self, key: &Key) -> Arc<Told> {
        let labels: Vec<_> = key.labels().map(metrics::Label::value).collect();
        let name = format!("{}/{}", key.name(), labels.join("/"));
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }

    fn count(&self, name: &str) -> u64 {
        let told = self.0.lock().unwrap();
        let Some(told) = told.get(name) else {
            panic!("{name} is none of {:?}", told.keys());
        };
        AtomicU64::load(&told.0, Ordering::Relaxed)
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.told(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.told(key))
    }
}

#[advisory_lock(key = "watched:<room>", wait = "never")]
async fn watched(
    conn: &mut AsyncPgConnection,
    room: i64,
    how: &str,
    started: &Notify,
) -> Result<(), Error> {
    started.notify_one();
    tracing::info!(target: "body", "running");
    match how {
        "fails" => return Err(Error::Database(diesel::NotFound)),
        "swallows" => drop(insert(conn, room, "\0").await),
        "hangs" => pending().await,
        _ => {}
    }
    Ok(())
}

#[advisory_lock(key = "leased-watch:<room>", scope = "lease", pool = leases)]
async fn leased<P: advisory_runtime::lease::Store>(
    leases: &Leases<P>,
    room: i64,
) -> QueryResult<i64> {
    tracing::info!(target: "body", "running");
    Ok(room)
}

async fn calls(db: &Database) {
    let mut conn = db.connect().await;
    watched(&mut conn, 1, "", &Notify::new()).await.unwrap();
    watched(&mut conn, 1, "fails", &Notify::new())
        .await
        .unwrap_err();
    watched(&mut conn, 1, "swallows", &Notify::new())
        .await
        .unwrap_err();
    let mut other = db.connect().await;
    {
        let started = Notify::new();
        let mut hanging = Box::pin(watched(&mut other, 1, "hangs", &started));
        tokio::select! {
            ended = &mut hanging => panic!("{ended:?}"),
            () = started.notified() => {}
        }
        let error = watched(&mut conn, 1, "", &Notify::new()).await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
    }
}

const ALONE: &str = "ADVISORY_TEST_TRAIL_ALONE";

pub(crate) fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

#[tokio::test]
async fn each_watcher_sees_what_it_should() {
    let names = [
        "each_lock_is_a_span_with_its_pattern_and_its_outcome",
        "counters_and_histograms_go_by_pattern",
        "a_lease_is_followed_like_a_lock",
        "a_lock_that_is_left_to_its_transaction_is_no_leak",
        "a_waiter_that_is_dropped_was_turned_away",
        "a_warning_names_its_pattern_where_no_span_is_wanted",
        "a_run_of_migrations_tells_its_steps",
        "a_call_that_polls_is_one_call_however_often_it_asks",
    ];
    each_alone("trail", &names).await;
}

/// Runs these tests of a module, each in a process of its own.
async fn each_alone(module: &str, names: &[&str]) {
    for name in names {
        alone(module, &[name]).await;
    }
}

/// Runs these tests of a module, and no other, in one process.
pub(crate) async fn alone(module: &str, names: &[&str]) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let tests = names.iter().map(|name| format!("{module}::{name}"));
    child.arg("--exact").args(tests).env(ALONE, "1");
    let ended = tokio::task::spawn_blocking(move || child.output().unwrap());
    let output = ended.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = format!("{} passed", names.len());
    assert!(output.status.success() && said.contains(&passed), "{said}");
}

/// Does nothing where it is not called by another test, as those below.
#[tokio::test]
async fn each_lock_is_a_span_with_its_pattern_and_its_outcome() {
    if !is_alone() {
        return;
    }
    let db = database().await;
    let heard = Heard::default();
    let _guard = tracing::subscriber::set_default(heard.clone());
    calls(&db).await;
    for text in [
        "new advisory_lock pattern=\"watched:<room>\" scope=\"xact\" mode=\"exclusive\"",
        "DEBUG in 0 message=acquired",
        // The body's own events are in the span.
        "INFO in 1 message=running",
        "record outcome=\"done\"",
        "record outcome=\"failed\"",
        "record outcome=\"rolled_back\"",
        "WARN in 0 message=swallowed error found: the call under advisory lock `watched:<room>`",
        "record outcome=\"not_available\"",
        "contention: advisory lock `watched:<room>` is held",
        "record outcome=\"dropped\"",
        "WARN in 0 message=leak prevented: the call was dropped, and its lock is released",
    ] {
        assert!(
            heard.has(text),
            "{text}: {:#?}",
            heard.lines.lock().unwrap()
        );
    }
    // Never a key.
    assert!(!heard.has("watched:1"));
}

#[tokio::test]
async fn a_run_of_migrations_tells_its_steps() {
    if !is_alone() {
        return;
    }
    let db = database().await;
    let heard = Heard::default();
    let _guard = tracing::subscriber::set_default(heard.clone());
    let conn = db.connect().await;
    let holder = advisory_runtime::session::acquire_owned(conn, KEY).await;
    let holder = Mutex::new(Some(holder.unwrap()));
    let migrator = Migrator::new(Written(vec![("1", "SELECT 1")])).on_step(move |step| {
        if matches!(step, Step::Waiting { .. }) {
            drop(holder.lock().unwrap().take());
        }
    });
    migrator.run(db.url()).await.unwrap();
    for text in [
        "message=waiting for process ",
        "INFO in 0 message=the lock is held: 1 migration is pending pending=1",
        "INFO in 0 message=running `1` (1 of 1) migration=\"1\"",
        "INFO in 0 message=`1` done in",
    ] {
        assert!(
            heard.has(text),
            "{text}: {:#?}",
            heard.lines.lock().unwrap()
        );
    }
}

#[tokio::test]
async fn counters_and_histograms_go_by_pattern() {
    if !is_alone() {
        return;
    }
    let db = database().await;
    let counted = Counted::default();
    let _guard = metrics::set_default_local_recorder(&counted);
    calls(&db).await;
    let labels = "watched:<room>/xact/exclusive";
    assert_eq!(
        counted.count(&format!("advisory_acquired_total/{labels}")),
        4
    );
    assert_eq!(counted.count(&format!("advisory_wait_seconds/{labels}")), 4);
    assert_eq!(counted.count(&format!("advisory_hold_seconds/{labels}")), 4);
    assert_eq!(
        counted.count(&format!("advisory_refused_total/{labels}/not_available")),
        1
    );
    for outcome in ["done", "failed", "rolled_back", "dropped"] {
        assert_eq!(
            counted.count(&format!("advisory_ended_total/{labels}/{outcome}")),
            1
        );
    }
}

#[tokio::test]
async fn a_lease_is_followed_like_a_lock() {
    if !is_alone() {
        return;
    }
    let db = lease::database().await;
    let (heard, counted) = (Heard::default(), Counted::default());
    let _guard = tracing::subscriber::set_default(heard.clone());
    let _counting = metrics::set_default_local_recorder(&counted);
    leased(&Leases::new(db.deadpool(1)), 5).await.unwrap();
    for text in [
        "new advisory_lock pattern=\"leased-watch:<room>\" scope=\"lease\"",
        "INFO in 1 message=running",
        "record outcome=\"done\"",
    ] {
        assert!(
            heard.has(text),
            "{text}: {:#?}",
            heard.lines.lock().unwrap()
        );
    }
    assert_eq!(
        counted.count("advisory_ended_total/leased-watch:<room>/lease/exclusive/done"),
        1
    );
}

#[tokio::test]
async fn a_lock_that_is_left_to_its_transaction_is_no_leak() {
    if !is_alone() {
        return;
    }
    let db = database().await;
    let (heard, counted) = (Heard::default(), Counted::default());
    let _guard = tracing::subscriber::set_default(heard.clone());
    let _counting = metrics::set_default_local_recorder(&counted);
    let mut conn = db.connect().await;
    let locked = conn.transaction::<_, Error, _>(async |conn| xact::lock(conn, 7).await);
    locked.await.unwrap();
    assert!(heard.has("record outcome=\"left\""));
    assert!(!heard.has("WARN"), "{:#?}", heard.lines.lock().unwrap());
    let labels = "number/xact/exclusive";
    assert_eq!(
        counted.count(&format!("advisory_acquired_total/{labels}")),
        1
    );
    assert_eq!(counted.count(&format!("advisory_wait_seconds/{labels}")), 1);
    let told = counted.0.lock().unwrap();
    assert_eq!(told.len(), 2, "{:?}", told.keys());
}

#[advisory_lock(key = "awaited:<room>", name = "awaited")]
async fn awaited(conn: &mut AsyncPgConnection, room: i64, started: &Notify) -> Result<(), Error> {
    insert(conn, room, "Ada").await?;
    started.notify_one();
    pending().await
}

/// One call holds the lock, another one waits for it, and both are dropped.
async fn drops(db: &Database) {
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let (started, never) = (Notify::new(), Notify::new());
    let room = 1;
    let LockKey::BigInt(key) = lock_key!("awaited:<room: int>", name = "awaited") else {
        panic!("a pattern's key is a bigint");
    };
    let mut first = Box::pin(awaited(&mut conn, room, &started));
    tokio::select! {
        ended = &mut first => panic!("{ended:?}"),
        () = started.notified() => {}
    }
    let mut second = Box::pin(awaited(&mut other, room, &never));
    tokio::select! {
        ended = &mut second => panic!("{ended:?}"),
        () = db.until_waiting(key) => {}
    }
    drop(second);
    drop(first);
}

#[tokio::test]
async fn a_waiter_that_is_dropped_was_turned_away() {
    if !is_alone() {
        return;
    }
    let db = database().await;
    let (heard, counted) = (Heard::default(), Counted::default());
    let _guard = tracing::subscriber::set_default(heard.clone());
    let _counting = metrics::set_default_local_recorder(&counted);
    drops(&db).await;
    let labels = "awaited:<room>/xact/exclusive";
    // One was held, and only that one has ended.
    for name in [
        format!("advisory_acquired_total/{labels}"),
        format!("advisory_hold_seconds/{labels}"),
        format!("advisory_ended_total/{labels}/dropped"),
        format!("advisory_refused_total/{labels}/dropped"),
    ] {
        assert_eq!(counted.count(&name), 1, "{name}");
    }
    assert!(heard.has("leak prevented: the call was dropped while it waited"));
}

#[tokio::test]
async fn a_warning_names_its_pattern_where_no_span_is_wanted() {
    if !is_alone() {
        return;
    }
    let db = database().await;
    let heard = Heard {
        only_warnings: true,
        ..Heard::default()
    };
    let _guard = tracing::subscriber::set_default(heard.clone());
    drops(&db).await;
    for what in ["while it waited", "and its lock is released"] {
        let lines = heard.lines.lock().unwrap();
        let warned = lines.iter().find(|line| line.contains(what));
        let warned = warned.unwrap_or_else(|| panic!("{what}: {lines:#?}"));
        assert!(warned.contains("pattern=\"awaited:<room>\""), "{warned}");
    }
}

#[advisory_lock(key = "polled:<room>", name = "polled", conn = pool.get().await?, wait = wait, poll = "2ms")]
async fn polled(
    pool: &deadpool::Pool<AsyncPgConnection>,
    room: i64,
    wait: Duration,
) -> anyhow::Result<()> {
    insert(conn, room, "Ada").await?;
    Ok(())
}

#[tokio::test]
async fn a_call_that_polls_is_one_call_however_often_it_asks() {
    if !is_alone() {
        return;
    }
    let db = database().await;
    let (heard, counted) = (Heard::default(), Counted::default());
    let _guard = tracing::subscriber::set_default(heard.clone());
    let _counting = metrics::set_default_local_recorder(&counted);
    let pool = db.deadpool(1);
    let mut holder = db.connect().await;
    let room = 1;
    let key = lock_key!("polled:<room: int>", name = "polled");
    let held = xact::begin(&mut holder, key).await.unwrap();
    let error = polled(&pool, room, Duration::from_millis(30))
        .await
        .unwrap_err();
    assert!(
        Error::find(&*error).is_some_and(|found| found.is_busy()),
        "{error:?}"
    );
    let hour = Duration::from_secs(3600);
    polled(&pool, 2, hour).await.unwrap();
    // A pool that has no connection for the next try is an error of the caller's, and drops no call.
    let closing = async {
        while pool.status().available == 1 {
            tokio::task::yield_now().await;
        }
        while pool.status().available == 0 {
            tokio::task::yield_now().await;
        }
        pool.close();
    };
    let (ended, ()) = tokio::join!(polled(&pool, room, hour), closing);
    ended.unwrap_err();
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    let labels = "polled:<room>/xact/exclusive";
    for name in [
        format!("advisory_refused_total/{labels}/timed_out"),
        format!("advisory_acquired_total/{labels}"),
        format!("advisory_wait_seconds/{labels}"),
        format!("advisory_ended_total/{labels}/done"),
    ] {
        assert_eq!(counted.count(&name), 1, "{name}");
    }
    assert!(!heard.has("leak prevented"));
}
