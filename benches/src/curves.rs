//! Throughput as connections grow, and the time of the slowest calls. The charts are drawn from
//! this.

use crate::ours::Xact;
use crate::rivals::{diesel_async, sqlx, tokio_postgres};
use crate::server::Server;
use crate::setting::{Keys, Setting};
use crate::side::{Beside, Open, Operation, Side};
use crate::spread::{median, per_mille};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const CONNECTIONS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// In thousandths.
const SHARES: [usize; 6] = [500, 750, 900, 950, 990, 999];
const AT_ONCE: usize = 16;
const SIDES: usize = 5;
/// The number of turns of each side, and their duration: long enough for the 99.9th percentile.
const SPEED: (usize, Duration) = (5, Duration::from_millis(150));
const LATENCY: (usize, Duration) = (5, Duration::from_millis(700));
/// The warm-up calls of a turn. On a new session they load the server's caches and prepare
/// statements; later they refill the processor's caches after the other side's turn.
const WARM_UP: Duration = Duration::from_millis(50);

/// Measures both sides, and prints the times of calls as they arrive.
pub(crate) async fn run(server: &Server) -> Value {
    let mut speeds = NAMES.map(|name| (name, Vec::new()));
    for connections in CONNECTIONS {
        let sides = sides(server, connections, SPEED).await;
        for ((_, speeds), side) in speeds.iter_mut().zip(sides) {
            speeds.push(side.speed);
        }
    }
    let sides = sides(server, AT_ONCE, LATENCY).await;
    let latencies = NAMES.iter().zip(sides).map(|(name, side)| {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
        let times = SHARES.map(|share| milliseconds(per_mille(&side.times, share)));
        let first = milliseconds(side.first);
        println!(
            "time of a call, {AT_ONCE} connections   {name:<30} 50 % {:.2} ms  99 % {:.2} ms  99.9 % {:.2} ms  the first {first:.2} ms",
            times[0], times[4], times[5],
        );
        json!({ "name": name, "calls": side.times.len(), "ms": times, "first_ms": first })
    });
    let latencies: Vec<_> = latencies.collect();
    let speeds = speeds.map(|(name, speeds)| json!({ "name": name, "ops": speeds }));
    json!({
        "throughput": { "connections": CONNECTIONS, "sides": speeds },
        "latency": { "connections": AT_ONCE, "per_mille": SHARES, "sides": latencies },
    })
}

const NAMES: [&str; SIDES] = [
    "#[advisory_lock]",
    "diesel-async by hand",
    "sqlx's transaction",
    "tokio-postgres, 4 round trips",
    "tokio-postgres, 3 round trips",
];

/// The results of one side.
struct Outcome {
    /// The median of its turns.
    speed: f64,
    /// The times of its calls, sorted, without warm-ups.
    times: Vec<Duration>,
    /// The longest first call of its sessions.
    first: Duration,
}

/// Measures the sides in turn, so that other load affects all of them.
async fn sides(
    server: &Server,
    connections: usize,
    (turns, length): (usize, Duration),
) -> [Outcome; SIDES] {
    let url = server.url(&Setting::plain(connections));
    let mut ours = open::<Xact>(url, connections).await;
    let mut by_hand = open::<diesel_async::ByHand>(url, connections).await;
    let mut of_sqlx = open::<sqlx::Transaction>(url, connections).await;
    let mut four = open::<tokio_postgres::Sequential>(url, connections).await;
    let mut three = open::<tokio_postgres::Three>(url, connections).await;
    let mut speeds: [Vec<f64>; SIDES] = Default::default();
    for turn in 0..turns {
        // The order changes, so that no side is always first or always after the same one.
        for side in 0..SIDES {
            let side = (side + turn) % SIDES;
            speeds[side].push(match side {
                0 => ours.turn(length).await,
                1 => by_hand.turn(length).await,
                2 => of_sqlx.turn(length).await,
                3 => four.turn(length).await,
                _ => three.turn(length).await,
            });
        }
    }
    let times = [
        ours.times(),
        by_hand.times(),
        of_sqlx.times(),
        four.times(),
        three.times(),
    ];
    let mut each = speeds.into_iter().zip(times);
    std::array::from_fn(|_| {
        let (mut speeds, (times, first)) = each.next().expect("as many as sides");
        speeds.sort_by(f64::total_cmp);
        Outcome {
            speed: median(&speeds),
            times,
            first,
        }
    })
}

async fn open<O: Open + Operation + 'static>(url: &str, connections: usize) -> Beside<Timed<O>> {
    Beside::open(url, connections, Keys::Distinct).await
}

impl<O: Open + Operation + 'static> Beside<Timed<O>> {
    /// Runs the warm-up calls, and discards their times.
    async fn turn(&mut self, length: Duration) -> f64 {
        for one in &mut self.each {
            one.is_warm = false;
        }
        self.run(WARM_UP).await;
        for one in &mut self.each {
            one.is_warm = true;
        }
        self.run(length).await
    }

    fn times(self) -> (Vec<Duration>, Duration) {
        let first = self.each.iter().filter_map(|one| one.first).max();
        let mut times: Vec<_> = self.each.into_iter().flat_map(|one| one.times).collect();
        times.sort_unstable();
        (times, first.unwrap_or_default())
    }
}

/// An operation, and the times of its calls after the warm-up.
struct Timed<O> {
    operation: O,
    is_warm: bool,
    first: Option<Duration>,
    times: Vec<Duration>,
}

impl<O: Open> Open for Timed<O> {
    async fn open(url: &str, key: i64) -> Self {
        Self {
            operation: O::open(url, key).await,
            is_warm: false,
            first: None,
            times: Vec::new(),
        }
    }
}

impl<O: Operation> Operation for Timed<O> {
    async fn operate(&mut self) {
        let start = Instant::now();
        self.operation.operate().await;
        let time = start.elapsed();
        self.first.get_or_insert(time);
        if self.is_warm {
            self.times.push(time);
        }
    }
}
