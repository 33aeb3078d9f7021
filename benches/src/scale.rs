//! The cost of a call when there are many calls at once, or many keys.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::ours::{Xact, locked};
use crate::pooled::{Pool, once, pool};
use crate::rivals::diesel_async::connect;
use crate::server::Server;
use crate::setting::{Keys, Setting};
use crate::side::{Beside, Side};
use diesel_async::AsyncPgConnection;
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CONNECTIONS: usize = 16;
const CALLS: i64 = 10_000;
const KEYS: usize = 100_000;

pub(crate) async fn run(
    server: &Server,
    flags: &Flags,
    tell: &mut dyn FnMut(Measured),
) -> Result<(), Box<dyn Error>> {
    let setting = Setting::plain(CONNECTIONS);
    let url = server.url(&setting);
    let what = ["scale: calls at once", "10,000"];
    if let Some(case) = Case::wanted(flags, what, setting, "16 calls at a time") {
        let pool = pool(url, CONNECTIONS)?;
        let at_once = |tasks| Calls {
            pool: pool.clone(),
            tasks,
        };
        // Each half takes about a second.
        let rounds = flags.pairs().min(3);
        let (mut ours, mut theirs) = (at_once(CALLS), at_once(16));
        tell(case.measure(rounds, &mut ours, &mut theirs).await);
    }
    let what = ["scale: distinct keys", "100,000"];
    if let Some(case) = Case::wanted(flags, what, setting, "16 keys") {
        let mut conns = Vec::new();
        for _ in 0..CONNECTIONS {
            conns.push(connect(url).await);
        }
        let next = 0;
        // All keys by the end, whatever the number of rounds.
        let a_round = KEYS.div_ceil(flags.pairs());
        let mut ours = Walk {
            conns,
            next,
            a_round: i64::try_from(a_round)?,
        };
        let mut theirs = Beside::<Xact>::open(url, CONNECTIONS, Keys::Distinct).await;
        tell(case.measure(flags.pairs(), &mut ours, &mut theirs).await);
    }
    Ok(())
}

/// This many calls, each on a key of its own, by this many tasks.
struct Calls {
    pool: Pool,
    tasks: i64,
}

impl Side for Calls {
    async fn run(&mut self, _: Duration) -> f64 {
        let (tasks, start) = (self.tasks, Instant::now());
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let pool = self.pool.clone();
            running.spawn(async move {
                for call in (task..CALLS).step_by(usize::try_from(tasks).unwrap_or(1)) {
                    once(&pool, call).await.expect("the lock");
                }
            });
        }
        running.join_all().await;
        #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
        let calls = CALLS as f64;
        calls / start.elapsed().as_secs_f64()
    }
}

/// Each call locks the next key; none is locked twice.
struct Walk {
    conns: Vec<AsyncPgConnection>,
    next: i64,
    a_round: i64,
}

impl Side for Walk {
    async fn run(&mut self, _: Duration) -> f64 {
        let (from, to) = (self.next, self.next + self.a_round);
        self.next = to;
        let start = Instant::now();
        let mut running = JoinSet::new();
        for (first, mut conn) in (from..).zip(std::mem::take(&mut self.conns)) {
            running.spawn(async move {
                for number in (first..to).step_by(CONNECTIONS) {
                    locked(&mut conn, number).await.expect("the lock");
                }
                conn
            });
        }
        self.conns = running.join_all().await;
        #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
        let calls = self.a_round as f64;
        calls / start.elapsed().as_secs_f64()
    }
}
