//! The pause between two tries of anything.

use crate::random::jitter;
use std::time::Duration;

/// Pauses that double up to the longest one, each less a random part of at most a half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) const fn between(first: Duration, longest: Duration) -> Self {
        Self {
            next: first,
            longest,
        }
    }

    /// The next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = jitter(self.next);
        self.next = self.next.saturating_mul(2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;
    use std::time::Duration;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let millis = Duration::from_millis;
        let mut backoff = Backoff::between(millis(10), millis(30));
        for whole in [10, 20, 30, 30] {
            let pause = backoff.pause();
            assert!(
                pause >= millis(whole) / 2 && pause <= millis(whole),
                "{pause:?}"
            );
        }
    }
}
