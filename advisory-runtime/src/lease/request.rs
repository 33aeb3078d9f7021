//! What does a call ask for: which key, for how long, and how is it held?

use crate::error::LEASE;
use crate::renewal::{DEFAULT_TTL, SHORTEST_TTL};
use crate::request::Origin;
use crate::{Error, LockKey, Wait};
use advisory_pattern::sha256;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// The longest rendered key, in bytes.
pub const LONGEST_KEY: usize = 512;

/// The server's times end.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// One acquisition of one lease, before it is sent.
///
/// ```
/// use advisory_runtime::{LockKey, Wait, lease::Request};
/// use std::time::Duration;
///
/// #[derive(LockKey)]
/// #[lock_key("webhook:<id>")]
/// struct Webhook<'a> {
///     id: &'a str,
/// }
///
/// let once = Request::new(Webhook { id: "evt_17" })
///     .ttl(Duration::from_secs(30))
///     .keep(Duration::from_secs(24 * 60 * 60))
///     .wait(Wait::Never);
/// let report = Request::text("report:2026-11");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request takes no lease by itself: give it to `Leases::acquire`"]
pub struct Request {
    pub(super) lock: &'static str,
    pub(super) key: String,
    pub(super) ttl: Duration,
    pub(super) renew: Option<Duration>,
    pub(super) keep: Option<Duration>,
    pub(super) wait: Wait,
    pub(super) max_hold: Option<Duration>,
    pub(super) origin: Origin,
}

impl Request {
    /// Asks for the lease on a key: a declared lock, whose rendered text it is, or a number, whose digits it is.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn new(key: impl LockKey) -> Self {
        Self::rendered(key.pattern(), key.rendered())
    }

    /// Asks for the lease on a text, taken as it is. What a pattern would have to tell apart you have to tell apart yourself.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn text(key: impl Into<String>) -> Self {
        Self::rendered("", key.into())
    }

    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn declared(key: &impl LockKey) -> Self {
        Self::new(key)
    }

    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub const fn rendered(lock: &'static str, key: String) -> Self {
        Self {
            lock,
            key,
            ttl: DEFAULT_TTL,
            renew: None,
            keep: None,
            wait: Wait::Session,
            max_hold: None,
            origin: Origin::here(),
        }
    }

    /// How long a grant lasts when it is not renewed, by the server's clock, in whole milliseconds, rounded up: 60 seconds unless you
    /// set it, and at least 100 milliseconds. A holder that is killed keeps others out for this time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How often it is renewed: every third of the ttl unless you set it. Shorter than the ttl.
    pub fn renew(mut self, renew: Duration) -> Self {
        self.renew = Some(renew);
        self
    }

    /// How long the key stays taken after an `Ok`: a second instance that ticks late does not run again. After an error, a panic and a
    /// drop it is free at once. If the process dies before the end of the call, the work runs again after the ttl; for *once* call
    /// [`Lease::complete`](super::Lease::complete).
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = Some(keep);
        self
    }

    /// How long to wait while somebody else holds it. [`Wait::Session`] is the `lock_timeout` of the pool's connections, as for
    /// locks; without one it waits for ever.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Bounds how long the body may run under the lease. The wait does not count.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// As of a lock.
    #[doc(hidden)]
    pub fn in_function(mut self, function: &'static str) -> Self {
        self.origin = self.origin.in_function(function);
        self
    }

    /// Where the call is, unless the request says it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn with_origin(mut self) -> Self {
        self.origin = self.origin.or(&Origin::here());
        self
    }

    pub(super) fn key_hash(&self) -> [u8; 32] {
        sha256(&self.key)
    }

    pub(super) fn every(&self) -> Duration {
        self.renew.unwrap_or(self.ttl / 3)
    }

    /// Its name in errors: its pattern, else the start of the hash in the table. Never its text.
    pub(super) fn name(&self) -> Cow<'static, str> {
        match self.lock {
            "" => format!("{LEASE}{}…", hex(&self.key_hash()[..6])).into(),
            pattern => format!("{LEASE}{pattern}").into(),
        }
    }

    /// Checks what needs no server.
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |reason| {
            let lock = self.name();
            Err(Error::InvalidLease { lock, reason })
        };
        if self.key.len() > LONGEST_KEY {
            return Err(Error::KeyTooLong {
                lock: self.name(),
                bytes: self.key.len(),
                max: LONGEST_KEY,
            });
        }
        if self.key.contains('\0') {
            return wrong("its key has a NUL character, which PostgreSQL's texts have not");
        }
        if self.ttl < SHORTEST_TTL {
            return wrong(
                "`ttl` is too short to be renewed in time: write at least 100 milliseconds",
            );
        }
        lasts(self.ttl, || self.name())?;
        lasts(self.keep.unwrap_or_default(), || self.name())?;
        if self.renew == Some(Duration::ZERO) {
            return wrong("`renew` is zero: leave it out for a third of `ttl`");
        }
        if self.every() >= self.ttl {
            return wrong("`renew` is not shorter than `ttl`: leave it out for a third of it");
        }
        Ok(())
    }
}

impl<K: LockKey> From<K> for Request {
    fn from(key: K) -> Self {
        let request = Self::new(key);
        Self {
            origin: request.origin.clone().without_place(),
            ..request
        }
    }
}

/// Checks that the server's times have room for it.
pub(super) fn lasts(time: Duration, lock: impl FnOnce() -> Cow<'static, str>) -> Result<(), Error> {
    if time <= LONGEST {
        return Ok(());
    }
    Err(Error::InvalidLease {
        lock: lock(),
        reason: "`ttl` and `keep` are at most 100 years",
    })
}

/// Whole milliseconds, rounded up.
pub(super) fn milliseconds(duration: Duration) -> i64 {
    let rounded = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(rounded).unwrap_or(i64::MAX)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = write!(digits, "{byte:02x}");
    }
    digits
}
