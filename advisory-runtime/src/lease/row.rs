//! A lease as the table has it.

use super::FencingToken;
use std::time::{Duration, SystemTime};

/// A lease that somebody holds, as the server sees it: every time is the server's own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The SHA-256 of the key's text.
    pub key_hash: [u8; 32],
    /// The key's text, where the table keeps it ([`Table::with_text`](super::Table::with_text)) and it was not released.
    pub key: Option<String>,
    /// Who holds it, as it calls itself.
    pub holder: String,
    /// The grant's token.
    pub token: FencingToken,
    /// When it was granted.
    pub acquired_at: SystemTime,
    /// When it ends unless it is renewed.
    pub expires_at: SystemTime,
    /// How long that is from when the server was asked.
    pub remaining: Duration,
}

impl Row {
    /// Reads what the statements of this crate write, and `None` from what they do not.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        let key_hash = bytes(next()?)?.try_into().ok()?;
        let token = FencingToken(next()?.parse().ok()?);
        let holder = String::from_utf8(bytes(next()?.strip_prefix('h')?)?).ok()?;
        let key = match next()?.strip_prefix('k')? {
            "" => None,
            digits => Some(String::from_utf8(bytes(digits)?).ok()?),
        };
        let acquired_at = time(next()?)?;
        let expires_at = time(next()?)?;
        let remaining = micros(next()?)?;
        Some(Self {
            key_hash,
            key,
            holder,
            token,
            acquired_at,
            expires_at,
            remaining,
        })
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}

fn time(digits: &str) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(micros(digits)?)
}

/// What is over counts as nothing.
pub(super) fn micros(digits: &str) -> Option<Duration> {
    let micros: i64 = digits.parse().ok()?;
    Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}
