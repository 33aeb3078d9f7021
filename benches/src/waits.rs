//! The distribution of waiting times under load: many callers of one key through a small pool, with
//! the queue and without, and a caller of another key at the same time.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::pooled::{Pool, hot, hot_queued, once, pool};
use crate::server::Server;
use crate::setting::{Keys, Setting};
use crate::side::Side;
use crate::spread::per_mille;
use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CALLERS: usize = 64;
const CONNECTIONS: usize = 16;
/// Long enough for each caller to get the lock many times.
const LENGTH: Duration = Duration::from_millis(500);

/// The times of the callers of one key.
pub(crate) struct Waits {
    is_queued: bool,
    /// How long each call waited, sorted.
    calls: Vec<Duration>,
    /// How long the calls for another key took, sorted.
    others: Vec<Duration>,
    /// How often each caller got the lock, sorted.
    turns: Vec<usize>,
}

pub(crate) async fn run(
    server: &Server,
    flags: &Flags,
    tell: &mut dyn FnMut(Measured),
) -> Result<Vec<Waits>, Box<dyn Error>> {
    let setting = Setting {
        keys: Keys::Hot,
        ..Setting::plain(CONNECTIONS)
    };
    let what = ["queue: one key", "64 callers"];
    let Some(case) = Case::wanted(flags, what, setting, "without the queue") else {
        return Ok(Vec::new());
    };
    let url = server.url(&setting);
    let mut ours = Load::new(pool(url, CONNECTIONS)?, true);
    let mut theirs = Load::new(pool(url, CONNECTIONS)?, false);
    tell(
        case.measure(flags.pairs().min(6), &mut ours, &mut theirs)
            .await,
    );
    Ok(vec![ours.waits(), theirs.waits()])
}

struct Load {
    pool: Pool,
    is_queued: bool,
    /// The results of each caller.
    waits: Vec<Vec<Duration>>,
    others: Vec<Duration>,
}

impl Load {
    fn new(pool: Pool, is_queued: bool) -> Self {
        Self {
            pool,
            is_queued,
            waits: vec![Vec::new(); CALLERS],
            others: Vec::new(),
        }
    }

    fn waits(self) -> Waits {
        let mut turns: Vec<usize> = self.waits.iter().map(Vec::len).collect();
        let mut calls = self.waits.concat();
        let mut others = self.others;
        turns.sort_unstable();
        calls.sort_unstable();
        others.sort_unstable();
        Waits {
            is_queued: self.is_queued,
            calls,
            others,
            turns,
        }
    }
}

impl Side for Load {
    async fn run(&mut self, _: Duration) -> f64 {
        let (is_queued, start) = (self.is_queued, Instant::now());
        let mut running = JoinSet::new();
        for (caller, mut waits) in std::mem::take(&mut self.waits).into_iter().enumerate() {
            let pool = self.pool.clone();
            running.spawn(async move {
                let before = waits.len();
                while start.elapsed() < LENGTH {
                    let now = Instant::now();
                    let waited = if is_queued {
                        hot_queued(&pool, now).await
                    } else {
                        hot(&pool, now).await
                    };
                    waits.push(waited.expect("the lock"));
                }
                (caller, waits.len() - before, waits)
            });
        }
        while start.elapsed() < LENGTH {
            let now = Instant::now();
            once(&self.pool, 1).await.expect("the lock");
            self.others.push(now.elapsed());
        }
        let mut done = running.join_all().await;
        let seconds = start.elapsed().as_secs_f64();
        done.sort_unstable_by_key(|(caller, ..)| *caller);
        let calls: usize = done.iter().map(|(_, calls, _)| calls).sum();
        self.waits = done.into_iter().map(|(_, _, waits)| waits).collect();
        #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
        let calls = calls as f64;
        calls / seconds
    }
}

impl Waits {
    pub(crate) fn json(&self) -> serde_json::Value {
        let micros = |sorted: &[Duration], share| per_mille(sorted, share).as_micros();
        serde_json::json!({
            "callers": CALLERS,
            "connections": CONNECTIONS,
            "queue": self.is_queued,
            "calls": self.calls.len(),
            "wait_us": {
                "p50": micros(&self.calls, 500),
                "p90": micros(&self.calls, 900),
                "p99": micros(&self.calls, 990),
                "max": micros(&self.calls, 1000),
            },
            "turns_of_a_caller": { "min": per_mille(&self.turns, 0), "max": per_mille(&self.turns, 1000) },
            "other_key_us": { "p50": micros(&self.others, 500), "p99": micros(&self.others, 990) },
        })
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = if self.is_queued { "with" } else { "without" };
        let wait = |share| per_mille(&self.calls, share);
        let (least, most) = (per_mille(&self.turns, 0), per_mille(&self.turns, 1000));
        let other = |share| per_mille(&self.others, share);
        write!(
            f,
            "{CALLERS} callers of one key, {CONNECTIONS} connections, {queue} the queue: waits p50 {:.1?}, p90 {:.1?}, p99 {:.1?}, \
             longest {:.1?}; turns of a caller {least} to {most}; a call for another key p50 {:.1?}, p99 {:.1?}",
            wait(500),
            wait(900),
            wait(990),
            wait(1000),
            other(500),
            other(990),
        )
    }
}
