//! The median of measurements, and its confidence interval.

/// The median, and its 95 % interval by the order statistics of the sign test.
pub(crate) fn spread(sorted: &[f64]) -> (f64, f64, f64) {
    let count = sorted.len();
    let low = lower_rank(count);
    (median(sorted), sorted[low], sorted[count - 1 - low])
}

pub(crate) fn median(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// The value at this many thousandths.
pub(crate) fn per_mille<T: Copy>(sorted: &[T], share: usize) -> T {
    sorted[((sorted.len() * share).div_ceil(1000)).clamp(1, sorted.len()) - 1]
}

/// The greatest rank that at most 2.5 % of the results of this many coin tosses are below
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
