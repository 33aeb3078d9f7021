//! The functions that the attribute's expansion calls, as `advisory_runtime::__private`. They are
//! not public: any release can change them.
#![allow(missing_docs, reason = "for the expansion alone")]

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod calls;
#[cfg(feature = "postgres")]
mod connection_in;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod convert;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod key_slices;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub mod request {
    use crate::{Error, LockKey, Request};

    pub use crate::request::{each, many, one};

    /// For the declared locks of the expression `written`: at least one, and at most `max`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn counted<K: LockKey>(
        keys: impl IntoIterator<Item = K>,
        written: &'static str,
        max: usize,
    ) -> Result<Request, Error> {
        let request = Request::all(keys);
        match request.keys.len() {
            0 => Err(Error::NoKeys {
                lock: written.into(),
                slice: written,
            }),
            keys if keys > max => Err(Error::TooManyKeys {
                lock: request.pattern.into(),
                keys,
                max,
            }),
            _ => Ok(request),
        }
    }
}

pub use crate::__record as record;
pub use crate::key::{Displayed, KeyWriter, known::named};
pub use advisory_pattern::{Derivation, Filter};
pub use core;
pub use core::result::Result::{Err, Ok};
pub use std::{boxed::Box, string::String, vec::Vec};
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub use {
    crate::error::{Fallible, ProductError, never},
    crate::holding::{Handle, OfDeclaredLock},
    crate::lock::{PoolPoll, acquire as acquire_at, begin as begin_at},
    crate::request::{Isolation, Wait, keyed},
    convert::returns,
    key_slices::Keys,
};
#[cfg(feature = "diesel-async")]
pub use {calls::*, convert::finish_async_at as finish_at, diesel_async::AsyncPgConnection};

/// The record of a lock site in the program: a static of bytes that the linker keeps even if the
/// function is never called. It consists of a text, the module's path, which only the compiler
/// knows, and another text; `$rest` is the length of both texts. It is a macro of this crate
/// because a token that the attribute emits costs more compile time than one in here.
#[doc(hidden)]
#[macro_export]
macro_rules! __record {
    ($rest:literal $before:literal $after:literal) => {
        $crate::__record!(@
            $rest + $crate::__private::core::module_path!().len(),
            $crate::__private::bytes(&[$crate::__private::core::concat!(
                $before,
                $crate::__private::core::module_path!(),
                $after
            )])
        );
    };
    (@ $length:expr, $bytes:expr) => {
        const _: () = {
            #[used]
            #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__advisory"))]
            #[cfg_attr(windows, unsafe(link_section = ".advsry"))]
            #[cfg_attr(
                not(any(target_vendor = "apple", windows)),
                unsafe(link_section = ".advisory")
            )]
            static RECORD: [u8; $length] = $bytes;
        };
    };
}

/// The record of a claim in the program: like that of a lock site, with the names of the table's
/// columns, which only the compiler knows, after the module's path. `$before` lacks the record's
/// start.
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __claim_record {
    ($before:literal $after:literal $row:ty) => {
        const _: () = {
            const COUNT: usize = $crate::__private::claim::count::<$row>();
            const TEXTS: &[[&str; 2]] = &$crate::__private::claim::texts::<$row, COUNT>(
                $before,
                $crate::__private::core::module_path!(),
                $after,
            );
            $crate::__record!(@
                $crate::__private::claim::length(TEXTS.as_flattened()),
                $crate::__private::bytes(TEXTS.as_flattened())
            );
        };
    };
}

/// The texts, one after the other.
///
/// # Panics
///
/// While compiling, if they are not as long as the array.
#[must_use]
pub const fn bytes<const N: usize>(mut texts: &[&str]) -> [u8; N] {
    let (mut all, mut at) = ([0; N], 0);
    while let [text, rest @ ..] = texts {
        let (_, unwritten) = all.split_at_mut(at);
        let (place, _) = unwritten.split_at_mut(text.len());
        place.copy_from_slice(text.as_bytes());
        at += text.len();
        texts = rest;
    }
    assert!(at == N, "a record is as long as its texts");
    all
}

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
#[must_use]
pub fn permits<N: PermitCount>(number: N) -> i128 {
    number.count()
}

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
#[diagnostic::on_unimplemented(
    message = "`permits` takes an integer, and `{Self}` is not one",
    label = "expected an integer from 1 to 1000, such as a `u32` or a `usize`"
)]
pub trait PermitCount {
    fn count(self) -> i128;
}

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
macro_rules! counts {
    ($($int:ty)*) => { $(
        impl PermitCount for $int {
            fn count(self) -> i128 {
                i128::try_from(self).unwrap_or(i128::MAX)
            }
        }

        impl PermitCount for std::num::NonZero<$int> {
            fn count(self) -> i128 {
                self.get().count()
            }
        }
    )* };
}
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
counts!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

/// Warns about a body that does not use the connection that its attribute takes.
#[deprecated = "a transaction-level lock protects only statements on `conn`, and the body does not use it: use it, or write `_ = conn;` in the body"]
pub const fn connection_is_unused() {}

#[must_use]
pub const fn millis(milliseconds: u64) -> std::time::Duration {
    std::time::Duration::from_millis(milliseconds)
}

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub mod claim {
    pub use crate::__claim_record as record;
    pub use crate::claim::{
        Absent, Claim, Deleted, ExpiryOf, Found, HolderOf, One, Order, SelectionOf, absent,
        changes, check_columns, check_last_attempt, from_row, selection,
    };
    pub use diesel::ExpressionMethods;
    pub use diesel::deserialize::Result;
    pub use diesel::pg::Pg;
    pub use diesel::query_builder::QueryFragment;
    pub use diesel::row::Row;

    use crate::claim::{
        CountColumn, KeyColumns, MaybeColumn, MaybeCount, MaybePer, MaybeRunAt, MaybeTime,
        TimeColumn,
    };
    use advisory_pattern::{CLAIM_COLUMNS, CLAIM_PARTS, CLAIM_START};
    use diesel::Column;

    /// The number of pairs besides those of the key and of the order.
    const FIXED: usize = 12;

    #[must_use]
    pub const fn count<T: Claim>() -> usize {
        FIXED + T::Key::NAMES.len() + 2 * T::ORDER.len()
    }

    /// The texts of a row's record, in pairs: its start, the texts around the module's path, the
    /// columns of the table, those of the key, and the order.
    #[must_use]
    pub const fn texts<T: Claim, const N: usize>(
        before: &'static str,
        module: &'static str,
        after: &'static str,
    ) -> [[&'static str; 2]; N] {
        const fn field(start: &'static str, value: Option<&'static str>) -> [&'static str; 2] {
            match value {
                Some(value) => [start, value],
                None => [""; 2],
            }
        }
        const fn time(column: Option<TimeColumn>) -> Option<&'static str> {
            match column {
                Some(column) => Some(column.name),
                None => None,
            }
        }
        const fn count(column: Option<CountColumn>) -> Option<&'static str> {
            match column {
                Some(column) => Some(column.name),
                None => None,
            }
        }
        let ended = if T::CompletedAt::DELETES {
            Some("completed_at")
        } else {
            None
        };
        let [until, by, completed, failed, error, run_at, attempts, per] = CLAIM_COLUMNS;
        let [deletes, key, order, direction] = CLAIM_PARTS;
        let fields = [
            CLAIM_START,
            [before, module],
            field(until, Some(T::LockedUntil::NAME)),
            field(by, Some(T::LockedBy::NAME)),
            field(completed, time(T::CompletedAt::COLUMN)),
            field(failed, time(T::FailedAt::COLUMN)),
            field(error, T::ErrorMessage::COLUMN),
            field(run_at, time(T::RunAt::COLUMN)),
            field(attempts, count(T::Attempts::COLUMN)),
            field(per, T::Per::COLUMN),
            field(deletes, ended),
        ];
        let mut texts = [[after, ""]; N];
        let (start, rest) = texts.split_at_mut(fields.len());
        start.copy_from_slice(&fields);
        let keys = T::Key::NAMES;
        let mut nth = 0;
        while nth < keys.len() {
            rest[nth] = [key, keys[nth]];
            nth += 1;
        }
        let mut nth = 0;
        while nth < T::ORDER.len() {
            let [column, end] = T::ORDER[nth].parts;
            let next = keys.len() + 2 * nth;
            (rest[next], rest[next + 1]) = ([order, column], [direction, end]);
            nth += 1;
        }
        texts
    }

    #[must_use]
    pub const fn length(mut texts: &[&str]) -> usize {
        let mut length = 0;
        while let [text, rest @ ..] = texts {
            length += text.len();
            texts = rest;
        }
        length
    }
}

#[cfg(feature = "postgres")]
pub mod blocking {
    pub use super::calls::blocking::*;
    pub use super::connection_in::{ConnectionIn, field};
    pub use super::convert::finish_blocking_at as finish_at;
    pub use diesel::PgConnection;

    /// Like [`pg`](super::pg), for blocking Diesel.
    pub fn pg<C: crate::blocking::Connection>(conn: &mut C) -> &mut PgConnection {
        conn.pg()
    }

    /// Like [`connection`](super::connection), for blocking Diesel.
    pub fn connection<P: crate::blocking::Pool + ?Sized>(
        pool: &P,
    ) -> Result<P::Connection, crate::Error> {
        let is_inside_body = crate::debug::bodies::is_inside_body();
        let connected = pool.connection();
        Ok(connected.map_err(|error| error.inside_body(is_inside_body))?)
    }
}

/// A free function, because an unmet bound is one error here, and several for a trait's method.
#[cfg(feature = "diesel-async")]
pub fn pg<C: crate::Connection>(conn: &mut C) -> &mut AsyncPgConnection {
    conn.pg()
}

/// A free function, like [`pg`]: a compile error is reported at the expression of `pool`.
#[cfg(feature = "diesel-async")]
#[expect(clippy::manual_async_fn, reason = "its future is `Send`")]
pub fn connection<P: crate::Pool + ?Sized>(
    pool: &P,
) -> impl Future<Output = Result<P::Connection<'_>, crate::Error>> + Send {
    async { Ok(crate::pool::connection_for(Wait::Session, pool.connection()).await?) }
}

/// Like [`connection`], for one try of this request.
#[cfg(feature = "diesel-async")]
pub fn connection_for<'p, P: crate::Pool + ?Sized>(
    pool: &'p P,
    request: &crate::Request,
) -> impl Future<Output = Result<P::Connection<'p>, crate::Error>> + Send + use<'p, P> {
    let wait = request.budget();
    async move { Ok(crate::pool::connection_for(wait, pool.connection()).await?) }
}

/// The functions that the expansion for a lease calls.
#[cfg(feature = "diesel-async")]
pub mod lease {
    pub use super::convert::returns_leased as returns;
    pub use crate::lease::Request;
    pub use crate::lease::guard::finish_at;
    pub use crate::lease::source::acquire_at;
}
