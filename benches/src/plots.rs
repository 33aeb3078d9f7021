//! Throughput by connections, and how long the calls take: drawn into a folder.

use crate::ours::Xact;
use crate::rivals::{diesel_async, sqlx, tokio_postgres};
use crate::server::Server;
use crate::setting::{Keys, Setting};
use crate::side::{Beside, Open, Operation, Side};
use crate::spread::{median, per_mille};
use crate::svg::{Chart, Line, Scale};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const CONNECTIONS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// In thousandths.
const SHARES: [(usize, &str); 6] = [
    (500, "50 %"),
    (750, "75 %"),
    (900, "90 %"),
    (950, "95 %"),
    (990, "99 %"),
    (999, "99.9 %"),
];
const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(200);

pub(crate) async fn draw(server: &Server, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut throughput = names().map(|name| (name, Vec::new()));
    for connections in CONNECTIONS {
        let speeds = sides(server, connections).await;
        for ((_, values), (speed, _)) in throughput.iter_mut().zip(speeds) {
            values.push(speed);
        }
    }
    let mut latency = names().map(|name| (name, Vec::new()));
    let at_once = 16;
    for ((_, values), (_, times)) in latency.iter_mut().zip(sides(server, at_once).await) {
        let milliseconds = |(share, _)| per_mille(&times, share).as_secs_f64() * 1_000.0;
        values.extend(SHARES.map(milliseconds));
    }
    fs::create_dir_all(folder)?;
    let chart = Chart {
        title: "Lock, one query, commit: operations a second, each connection with its own key",
        across: "connections",
        places: CONNECTIONS
            .map(|connections| connections.to_string())
            .into(),
        lines: lines(throughput),
        scale: Scale::Even,
    };
    fs::write(folder.join("throughput.svg"), chart.svg())?;
    let chart = Chart {
        title: "Lock, one query, commit: milliseconds, 16 connections, each with its own key",
        across: "of the calls took no longer",
        places: SHARES.map(|(_, name)| name.to_owned()).into(),
        lines: lines(latency),
        scale: Scale::Doublings,
    };
    fs::write(folder.join("latency.svg"), chart.svg())?;
    Ok(())
}

fn names() -> [&'static str; 4] {
    [
        "#[advisory_lock]",
        "diesel-async by hand",
        "sqlx's transaction",
        "tokio-postgres by hand",
    ]
}

fn lines<const N: usize>(values: [(&'static str, Vec<f64>); N]) -> Vec<Line> {
    let lines = values.map(|(name, values)| Line { name, values });
    lines.into()
}

/// The median speed of each, and how long its calls took, sorted; in turn, so that all have the same weather.
async fn sides(server: &Server, connections: usize) -> [(f64, Vec<Duration>); 4] {
    let url = server.url(&Setting::plain(connections));
    let mut ours = open::<Xact>(url, connections).await;
    let mut by_hand = open::<diesel_async::ByHand>(url, connections).await;
    let mut of_sqlx = open::<sqlx::Transaction>(url, connections).await;
    let mut raw = open::<tokio_postgres::Sequential>(url, connections).await;
    let mut speeds: [Vec<f64>; 4] = Default::default();
    for _ in 0..TURNS {
        speeds[0].push(ours.run(TURN).await);
        speeds[1].push(by_hand.run(TURN).await);
        speeds[2].push(of_sqlx.run(TURN).await);
        speeds[3].push(raw.run(TURN).await);
    }
    let times = [times(ours), times(by_hand), times(of_sqlx), times(raw)];
    let mut each = speeds.into_iter().zip(times).map(|(mut speeds, times)| {
        speeds.sort_by(f64::total_cmp);
        (median(&speeds), times)
    });
    std::array::from_fn(|_| each.next().expect("as many as sides"))
}

async fn open<O: Open + Operation + 'static>(url: &str, connections: usize) -> Beside<Timed<O>> {
    Beside::open(url, connections, Keys::Distinct).await
}

fn times<O>(side: Beside<Timed<O>>) -> Vec<Duration> {
    let mut times: Vec<_> = side.each.into_iter().flat_map(|one| one.times).collect();
    times.sort_unstable();
    times
}

/// An operation, and how long it took each time.
struct Timed<O> {
    operation: O,
    times: Vec<Duration>,
}

impl<O: Open> Open for Timed<O> {
    async fn open(url: &str, key: i64) -> Self {
        let operation = O::open(url, key).await;
        let times = Vec::new();
        Self { operation, times }
    }
}

impl<O: Operation> Operation for Timed<O> {
    async fn operate(&mut self) {
        let start = Instant::now();
        self.operation.operate().await;
        self.times.push(start.elapsed());
    }
}
