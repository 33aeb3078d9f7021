//! A row of the lease table.

use super::FencingToken;
use super::sql::NEVER;
use super::statement::RowColumns;
use diesel::pg::Pg;
use diesel::prelude::Queryable;
use std::time::{Duration, SystemTime};

/// A held lease or a done key, with times by the server's clock.
///
/// ```
/// use advisory_runtime::lease::Row;
///
/// fn describe(row: &Row) -> String {
///     let key = row.pattern.as_deref().unwrap_or("a key without a pattern");
///     if row.is_done {
///         format!("{key} is done for {:?}", row.remaining)
///     } else {
///         format!("{key} is held by {} with token {}", row.holder, row.token)
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The SHA-256 of the key's text.
    pub key_hash: [u8; 32],
    /// The grant's token.
    pub token: FencingToken,
    /// The key's pattern, such as `report:<month>`; `None` for
    /// [`Request::text`](super::Request::text).
    pub pattern: Option<String>,
    /// The key's text, if the lease is held and the table stores texts
    /// ([`Table::with_text`](super::Table::with_text)).
    pub key: Option<String>,
    /// The holder's name ([`Table::held_by`](super::Table::held_by)).
    pub holder: String,
    /// The holder's data ([`Request::data`](super::Request::data)), such as its address.
    pub data: Option<String>,
    /// `true` if the work is done. The key then stays taken until it expires, and nobody holds it.
    pub is_done: bool,
    /// When it was granted.
    pub acquired_at: SystemTime,
    /// When it expires unless it is renewed. In the year 192103 for a row that [never
    /// does](Self::never_expires).
    pub expires_at: SystemTime,
    /// The time until then.
    pub remaining: Duration,
}

impl Row {
    /// How long ago it was granted, by the server's clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        let granted = self.expires_at.duration_since(self.acquired_at);
        granted.unwrap_or_default().saturating_sub(self.remaining)
    }

    /// Returns `true` if its `expires_at` is `infinity`, or later than the year 192103. This crate
    /// writes no such time.
    #[must_use]
    pub fn never_expires(&self) -> bool {
        let never = Duration::from_secs(NEVER.unsigned_abs());
        self.expires_at
            .duration_since(SystemTime::UNIX_EPOCH)
            .is_ok_and(|since| since >= never)
    }
}

impl Queryable<RowColumns, Pg> for Row {
    type Row = (
        Vec<u8>,
        i64,
        Option<String>,
        Option<String>,
        String,
        Option<String>,
        bool,
        i64,
        i64,
        i64,
    );

    fn build(row: Self::Row) -> diesel::deserialize::Result<Self> {
        let (key_hash, token, pattern, key, holder, data, is_done, acquired, expires, left) = row;
        let key_hash = <[u8; 32]>::try_from(key_hash);
        let time = |since| SystemTime::UNIX_EPOCH.checked_add(micros(since));
        Ok(Self {
            key_hash: key_hash.map_err(|_| "a key's hash has 32 bytes")?,
            token: FencingToken(token),
            pattern,
            key,
            holder,
            data,
            is_done,
            acquired_at: time(acquired).ok_or("a time that this system does not have")?,
            expires_at: time(expires).ok_or("a time that this system does not have")?,
            remaining: micros(left),
        })
    }
}

/// Negative counts as zero.
pub(super) fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
