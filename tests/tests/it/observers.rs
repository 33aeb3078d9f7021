//! Recorders for tests: a subscriber of `tracing`, and a recorder of `metrics`.
//!
//! Such tests run in processes of their own: the first call decides for the whole process whether a
//! span is enabled.

use advisory_tests::futures::spawn_blocking;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

/// The recorded output, in order: `new advisory_lock pattern=…`, `event …`, and the body's own
/// events.
#[derive(Clone, Default)]
pub(crate) struct Heard {
    only_warnings: bool,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
    next: Arc<AtomicU64>,
    entered: Arc<Mutex<Vec<u64>>>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Times differ between runs.
        if !field.name().ends_with("_ms") {
            let _: std::fmt::Result = write!(self.0, " {}={value:?}", field.name());
        }
    }
}

impl Heard {
    fn say(&self, line: Line) {
        self.lines.lock().unwrap().push(line.0);
    }

    pub(crate) fn assert_has(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.has(text), "{text}: {:#?}", self.lines.lock().unwrap());
        }
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
pub(crate) struct Counted(pub(crate) Mutex<HashMap<String, Arc<Reports>>>);

#[derive(Default)]
pub(crate) struct Reports(AtomicU64);

impl CounterFn for Reports {
    fn increment(&self, value: u64) {
        AtomicU64::fetch_add(&self.0, value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        AtomicU64::store(&self.0, value, Ordering::Relaxed);
    }
}

impl HistogramFn for Reports {
    fn record(&self, value: f64) {
        assert!((0.0..60.0).contains(&value), "{value} seconds");
        self.increment(1);
    }
}

impl Counted {
    fn reports(&self, key: &Key) -> Arc<Reports> {
        let labels: Vec<_> = key.labels().map(metrics::Label::value).collect();
        let name = format!("{}/{}", key.name(), labels.join("/"));
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        let reports = self.0.lock().unwrap();
        let Some(reports) = reports.get(name) else {
            panic!("{name} is none of {:?}", reports.keys());
        };
        AtomicU64::load(&reports.0, Ordering::Relaxed)
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.reports(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.reports(key))
    }
}

pub(crate) struct Watch {
    pub(crate) heard: Heard,
    pub(crate) counted: &'static Counted,
    _subscriber: tracing::subscriber::DefaultGuard,
    _recorder: metrics::LocalRecorderGuard<'static>,
}

/// Records what follows; `None` unless another test has started this one.
pub(crate) fn watch() -> Option<Watch> {
    watch_with(Heard::default())
}

/// Like [`watch`], with the configuration of most programs.
pub(crate) fn watch_warnings() -> Option<Watch> {
    let only_warnings = true;
    watch_with(Heard {
        only_warnings,
        ..Heard::default()
    })
}

fn watch_with(heard: Heard) -> Option<Watch> {
    let counted: &'static Counted = Box::leak(Box::default());
    std::env::var_os(ALONE).map(|_| Watch {
        _subscriber: tracing::subscriber::set_default(heard.clone()),
        _recorder: metrics::set_default_local_recorder(counted),
        heard,
        counted,
    })
}

const ALONE: &str = "ADVISORY_TEST_ALONE";

pub(crate) fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs these tests of a module, each in its own process.
pub(crate) async fn each_alone(module: &str, names: &[&str]) {
    for name in names {
        alone(module, &[name]).await;
    }
}

/// Runs only these tests of a module, in one process.
pub(crate) async fn alone(module: &str, names: &[&str]) {
    let tests: Vec<String> = names
        .iter()
        .map(|name| format!("{module}::{name}"))
        .collect();
    again(&tests, ALONE, "1").await;
}

/// Runs only these tests once more, in one process with this variable.
pub(crate) async fn again<T: AsRef<OsStr>>(tests: &[T], variable: &str, value: impl AsRef<OsStr>) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.arg("--exact").args(tests).env(variable, value);
    let ended = spawn_blocking(move || {
        advisory_tests::share_template(&mut child);
        child.output().unwrap()
    });
    let output = ended.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = format!("{} passed", tests.len());
    assert!(output.status.success() && said.contains(&passed), "{said}");
}
