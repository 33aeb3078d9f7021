//! The conditions under which a pair is measured.

use std::fmt;
use std::time::Duration;

/// Whether each connection locks a key of its own, or all lock the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Distinct,
    Hot,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) connections: usize,
    pub(crate) keys: Keys,
    /// Added to each round trip. A delay needs TCP.
    pub(crate) delay_ms: u64,
}

impl Setting {
    /// The simplest: the server's socket, and a key for each connection.
    pub(crate) fn plain(connections: usize) -> Self {
        Self {
            connections,
            keys: Keys::Distinct,
            delay_ms: 0,
        }
    }

    /// The settings for the locks. On one key with a delay, every holder holds it for two round
    /// trips, which hides everything else.
    pub(crate) fn all() -> [Self; 5] {
        let (one, many) = (Self::plain(1), Self::plain(16));
        let hot = Self {
            keys: Keys::Hot,
            ..many
        };
        let far = |near| Self {
            delay_ms: 2,
            ..near
        };
        [one, many, hot, far(one), far(many)]
    }

    pub(crate) fn transport(&self) -> &'static str {
        if self.delay_ms == 0 { "unix" } else { "tcp" }
    }

    /// The duration of each half of a pair.
    pub(crate) fn half(&self) -> Duration {
        Duration::from_millis(if self.delay_ms == 0 { 100 } else { 120 })
    }

    /// The number of pairs. With a delay the results vary little, and take long.
    pub(crate) fn rounds(&self, rounds: usize) -> usize {
        if self.delay_ms == 0 {
            rounds
        } else {
            rounds / 2 + 1
        }
    }
}

impl Keys {
    /// The key of each connection.
    pub(crate) fn numbers(self, connections: usize) -> impl Iterator<Item = i64> {
        (1..).take(connections).map(move |number| match self {
            Self::Distinct => number,
            Self::Hot => 0,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Distinct => "distinct",
            Self::Hot => "hot",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transport, keys) = (self.transport(), self.keys.name());
        write!(
            f,
            "{transport:<5} {:>5} {keys:<8} {:>3} ms",
            self.connections, self.delay_ms
        )
    }
}
