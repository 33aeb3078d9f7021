//! One comparison, measured in pairs.

use std::fmt;
use std::time::{Duration, Instant};

/// How long each half of a pair runs.
const HALF: Duration = Duration::from_millis(150);

pub(crate) struct Case {
    pub(crate) case: &'static str,
    pub(crate) setting: String,
    pub(crate) connections: usize,
    pub(crate) rival: &'static str,
    /// Ours in each round, operations a second.
    ours: Vec<f64>,
    /// Ours over the rival's in each round, sorted.
    ratios: Vec<f64>,
}

/// What can be measured: many operations, one after the other, on each of its connections.
pub(crate) trait Side {
    /// Runs until the time is over; how many operations it was.
    async fn until(&mut self, end: Instant) -> usize;
}

impl Case {
    pub(crate) const HEAD: &'static str = "case                            setting     conns  ops/s  against                        ratio";

    /// Measures both, round after round; the first round warms them up.
    pub(crate) async fn measure(
        (case, setting, connections, rival): (&'static str, String, usize, &'static str),
        rounds: usize,
        ours: &mut impl Side,
        theirs: &mut impl Side,
    ) -> Self {
        let mut measured = Self {
            case,
            setting,
            connections,
            rival,
            ours: Vec::new(),
            ratios: Vec::new(),
        };
        for round in 0..=rounds {
            // Whoever is second finds warmer caches.
            let (our, their) = if round % 2 == 0 {
                let our = speed(ours).await;
                (our, speed(theirs).await)
            } else {
                let their = speed(theirs).await;
                (speed(ours).await, their)
            };
            if round > 0 {
                measured.ours.push(our);
                measured.ratios.push(our / their);
            }
        }
        measured.ours.sort_by(f64::total_cmp);
        measured.ratios.sort_by(f64::total_cmp);
        measured
    }

    /// The median, and between which two ratios it lies with a probability of 95 %, by the sign test's order statistics.
    fn ratio(&self) -> (f64, f64, f64) {
        let ratios = &self.ratios;
        let count = ratios.len();
        let low = lower_rank(count);
        (median(ratios), ratios[low], ratios[count - 1 - low])
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        let (ratio, low, high) = self.ratio();
        serde_json::json!({
            "case": self.case,
            "setting": self.setting,
            "transport": "unix",
            "connections": self.connections,
            "keys": "distinct",
            "delay_ms": 0,
            "rival": self.rival,
            "ops": median(&self.ours),
            "ratio": ratio,
            "low": low,
            "high": high,
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ratio, low, high) = self.ratio();
        write!(
            f,
            "{:<31} {:<11} {:>5} {:>6.0}  {:<26} {ratio:>6.2} ({low:.2} to {high:.2})",
            self.case,
            self.setting,
            self.connections,
            median(&self.ours),
            self.rival,
        )
    }
}

async fn speed(side: &mut impl Side) -> f64 {
    let start = Instant::now();
    let operations = side.until(start + HALF).await;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 operations")]
    let operations = operations as f64;
    operations / start.elapsed().as_secs_f64()
}

fn median(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// The greatest rank below which, of so many tosses of a coin, at most 2.5 % fall
/// (<https://en.wikipedia.org/wiki/Median#Sampling_distribution>).
fn lower_rank(count: usize) -> usize {
    let mut below = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut chance, mut rank) = (below, 0);
    while rank < count / 2 {
        #[expect(clippy::cast_precision_loss, reason = "a number of rounds")]
        let next = below * (count - rank) as f64 / (rank + 1) as f64;
        below = next;
        if chance + below > 0.025 {
            break;
        }
        chance += below;
        rank += 1;
    }
    rank
}
