//! A request for a lease: which key, how long, and how to wait for it.

use super::Error;
use crate::request::Origin;
use crate::rows::{DEFAULT_TTL, SHORTEST_TTL};
use crate::{LockKey, Wait};
use advisory_pattern::sha256;
use std::borrow::Cow;
use std::time::Duration;

/// The longest rendered key, in bytes.
const LONGEST_KEY: usize = 512;

/// The longest data of a holder, in bytes.
const LONGEST_DATA: usize = 1024;

/// The longest `ttl` and `keep`: PostgreSQL's timestamps are bounded.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A request for a lease.
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
#[must_use = "a request does nothing until it is given to `Leases::acquire`"]
pub struct Request {
    pub(super) lock: &'static str,
    pub(super) key: String,
    pub(crate) key_hash: [u8; 32],
    pub(super) ttl: Duration,
    pub(super) renew: Option<Duration>,
    pub(super) keep: Option<Duration>,
    pub(super) wait: Wait,
    pub(super) max_hold: Option<Duration>,
    pub(super) data: Option<String>,
    pub(super) origin: Origin,
}

impl Request {
    /// The ttl of a request that sets none, and of a lock site without `ttl`: a minute.
    pub const DEFAULT_TTL: Duration = DEFAULT_TTL;

    /// Requests the lease on a declared lock, by its rendered text, or on a number, by its digits.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn new(key: impl LockKey) -> Self {
        Self::rendered(key.pattern(), key.rendered())
    }

    /// Requests the lease on a text as it is. Unlike a pattern, it does not escape values to keep
    /// them apart.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn text(key: impl Into<String>) -> Self {
        Self::rendered("", key.into())
    }

    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn rendered(lock: &'static str, key: String) -> Self {
        Self {
            lock,
            key_hash: sha256(&key),
            key,
            ttl: DEFAULT_TTL,
            renew: None,
            keep: None,
            wait: Wait::Session,
            max_hold: None,
            data: None,
            origin: Origin::here(),
        }
    }

    /// How long a grant lasts unless it is renewed, by the server's clock: 60 seconds by default,
    /// at least 100 milliseconds. A holder that is killed keeps others out for this time. Rounded
    /// up to whole milliseconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How often the lease is renewed: by default every third of the ttl. It must be shorter than
    /// the ttl.
    pub fn renew(mut self, renew: Duration) -> Self {
        self.renew = Some(renew);
        self
    }

    /// How long the key is done after an `Ok`, so that an instance that starts late does not run
    /// again: it gets [`Error::Done`]. After an error, a panic or a drop it is free at once. If the
    /// process dies before the end of the call, the work runs again after the ttl; to run it
    /// *once*, call [`Lease::complete`](super::Lease::complete).
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = Some(keep);
        self
    }

    /// How long to wait while the key is held. [`Wait::Session`], the default, is the
    /// `lock_timeout` of the pool's connections. A key that is done is not waited for.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Bounds how long the body may run under the lease, without the wait.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// A text of up to 1,024 bytes for those who read the table, such as a leader's address; see
    /// [`Row::data`](super::Row::data). It is erased with the release, and stays with a key that is
    /// done. [`Table::set_data`](super::Table::set_data) changes it.
    pub fn data(mut self, data: impl Into<String>) -> Self {
        self.data = Some(data.into());
        self
    }

    #[doc(hidden)]
    pub fn in_function(mut self, function: &'static str) -> Self {
        self.origin = self.origin.in_function(function);
        self
    }

    /// Sets the place of the call, unless the request has one.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn with_origin(mut self) -> Self {
        self.origin = self.origin.or(&Origin::here());
        self
    }

    pub(super) fn every(&self) -> Duration {
        self.renew.unwrap_or(self.ttl / 3)
    }

    /// The name in errors: the pattern, or the start of the key's hash. Never the text, which can
    /// be personal data.
    pub(super) fn name(&self) -> Cow<'static, str> {
        name_of(self.lock, &self.key_hash)
    }

    /// Checks what can be checked without the server.
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |reason| {
            let lock = self.name();
            Err(Error::Invalid { lock, reason })
        };
        if self.key.len() > LONGEST_KEY {
            return Err(Error::KeyTooLong {
                lock: self.name(),
                bytes: self.key.len(),
                max: LONGEST_KEY,
            });
        }
        if self.key.contains('\0') {
            return wrong("its key has a NUL character, which PostgreSQL's texts can't contain");
        }
        if let Some(reason) = self.data.as_deref().and_then(wrong_data) {
            return wrong(reason);
        }
        if self.ttl < SHORTEST_TTL {
            return wrong(
                "`ttl` is too short to be renewed in time: write at least 100 milliseconds",
            );
        }
        if self.keep.unwrap_or_default().max(self.ttl) > LONGEST {
            return wrong("`ttl` and `keep` are at most 100 years");
        }
        if self.renew == Some(Duration::ZERO) {
            return wrong("`renew` is zero: leave it out for a third of `ttl`");
        }
        if self.every() >= self.ttl {
            return wrong("`renew` is not shorter than `ttl`: leave it out for a third of it");
        }
        Ok(())
    }
}

/// Returns what is wrong with a holder's data.
pub(super) fn wrong_data(data: &str) -> Option<&'static str> {
    if data.len() > LONGEST_DATA {
        return Some("its data has more than 1,024 bytes: store it elsewhere, and its place here");
    }
    let has_nul = data.contains('\0');
    has_nul.then_some("its data has a NUL character, which PostgreSQL's texts can't contain")
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

/// Whole milliseconds, rounded up.
pub(super) fn milliseconds(duration: Duration) -> i64 {
    let rounded = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(rounded).unwrap_or(i64::MAX)
}

/// The pattern of a lock; for a key without one, the key's hash.
pub(super) fn name_of(pattern: &'static str, key_hash: &[u8; 32]) -> Cow<'static, str> {
    match pattern {
        "" => name_of_hash(key_hash).into(),
        pattern => pattern.into(),
    }
}

/// The first six bytes of the hash.
pub(super) fn name_of_hash(key_hash: &[u8; 32]) -> String {
    let first = u64::from_be_bytes(key_hash.first_chunk().copied().unwrap_or_default());
    format!("{:012x}…", first >> 16)
}
