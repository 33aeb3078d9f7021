//! Under which conditions is a pair measured?

use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Unix,
    Tcp,
}

/// Whether each connection locks a key of its own, or all the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Distinct,
    Hot,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) transport: Transport,
    pub(crate) connections: usize,
    pub(crate) keys: Keys,
    /// Added to each round trip.
    pub(crate) delay_ms: u64,
}

impl Setting {
    /// The plainest: on the server's socket, each connection with its own key.
    pub(crate) fn plain(connections: usize) -> Self {
        Self {
            transport: Transport::Unix,
            connections,
            keys: Keys::Distinct,
            delay_ms: 0,
        }
    }

    /// Those that the locks are measured in.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let loads = [(1, Keys::Distinct), (16, Keys::Distinct), (16, Keys::Hot)];
        [0, 2].into_iter().flat_map(move |delay_ms| {
            [Transport::Unix, Transport::Tcp]
                .into_iter()
                .flat_map(move |transport| {
                    loads.into_iter().map(move |(connections, keys)| Self {
                        transport,
                        connections,
                        keys,
                        delay_ms,
                    })
                })
        })
    }

    /// How long each half of a pair runs. One key and a delay: an operation waits for fifteen others.
    pub(crate) fn half(&self) -> Duration {
        Duration::from_millis(match (self.delay_ms, self.keys) {
            (0, _) => 100,
            (_, Keys::Distinct) => 120,
            (_, Keys::Hot) => 200,
        })
    }

    /// How many pairs. What a delay makes of it hardly varies, and takes long.
    pub(crate) fn rounds(&self, rounds: usize) -> usize {
        if self.delay_ms == 0 {
            rounds
        } else {
            rounds / 2 + 1
        }
    }
}

impl Keys {
    /// What each connection locks.
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

impl Transport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transport, keys) = (self.transport.name(), self.keys.name());
        write!(
            f,
            "{transport:<5} {:>5} {keys:<8} {:>3} ms",
            self.connections, self.delay_ms
        )
    }
}
