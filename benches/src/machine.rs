//! The description of a run: the versions, the time, the machine, and how busy that machine was.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const LOCK_FILE: &str = include_str!("../../Cargo.lock");
/// The crates whose speed is measured.
const LIBRARIES: [&str; 4] = ["diesel", "diesel-async", "sqlx", "tokio-postgres"];

/// The description in every run.
pub(crate) fn describe() -> Value {
    let libraries = LIBRARIES.map(|name| format!("{name} {}", version(name).unwrap_or("?")));
    json!({
        "date": output("date", &["-u", "+%Y-%m-%d %H:%M"]),
        "commit": output("git", &["rev-parse", "--short=8", "HEAD"]),
        "is_changed": output("git", &["status", "--porcelain", "--untracked-files=no", "--", "advisory-runtime", "advisory-derive", "advisory-pattern", "Cargo.lock", "benches/src"])
            .is_some_and(|changes| !changes.is_empty()),
        "processor": processor(),
        "processors": processors(),
        "libraries": libraries,
    })
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    benches.parent().unwrap_or(benches)
}

fn output(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(words)
        .current_dir(root())
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn version(library: &str) -> Option<&'static str> {
    // The newest, which is ours: one rival depends on an older sqlx.
    let (_, package) = LOCK_FILE.rsplit_once(&format!("\nname = \"{library}\"\nversion = \""))?;
    package.split('"').next()
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(": ")?.1.to_owned())
}

fn processors() -> Option<usize> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    Some(
        text.lines()
            .filter(|line| line.starts_with("processor"))
            .count(),
    )
}

/// How long the processors with these names were busy, and how long in all, in hundredths of a
/// second. `cpu` is all of them.
fn ticks(is_counted: impl Fn(&str) -> bool) -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let (mut busy, mut all) = (0, 0);
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let mut words = line.split_whitespace();
        if is_counted(words.next()?) {
            let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            // The fourth is idle time, the fifth waiting for a disk, and from the ninth on guests',
            // which is counted already.
            let idle: u64 = times.iter().skip(3).take(2).sum();
            let total: u64 = times.iter().take(8).sum();
            busy += total - idle;
            all += total;
        }
    }
    Some((busy, all))
}

/// How long this machine's processors have been busy, in seconds.
pub(crate) fn busy_seconds() -> f64 {
    let (busy, _) = ticks(|name| name == "cpu").unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    let seconds = busy as f64 / 100.0;
    seconds
}

/// Other load of this machine: the time that the processors other than ours were busy.
pub(crate) struct Others {
    busy: u64,
    all: u64,
}

impl Others {
    /// `None` if the system does not report it, or has only one processor.
    pub(crate) fn now() -> Option<Self> {
        let is_other = |name: &str| !matches!(name, "cpu" | "cpu0");
        let (busy, all) = ticks(is_other)?;
        (all > 0).then_some(Self { busy, all })
    }

    /// The share of the time since then, in per cent.
    pub(crate) fn since(&self) -> Option<u64> {
        let now = Self::now()?;
        (100 * (now.busy - self.busy)).checked_div(now.all - self.all)
    }
}
