//! Converts an error of the lock into the error of the user's function.
//!
//! A user's type may have `From<diesel::result::Error>`, `From<advisory_runtime::Error>`, or both. Method resolution finds out which:
//! `convert` on [`Returns`] needs both; if the type does not have both, the compiler looks at what [`Returns`] dereferences to. The
//! methods are inherent, since a trait's would have to be imported at each lock site.
#![allow(
    missing_docs,
    reason = "for the expansion alone; what is not obvious is said"
)]
#![allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::unused_self,
    reason = "method resolution on the type is what chooses the conversion"
)]

use crate::Error;
use crate::error::Fallible;
use diesel::result::Error as DieselError;
#[cfg(feature = "diesel-async")]
use std::future::{Ready, ready};
use std::marker::PhantomData;

/// The return type of the annotated function. Converts an error whose type has both conversions.
pub struct Returns<R>(PhantomData<fn() -> R>);

/// As [`Returns`], with the conversion from Diesel's error.
pub struct ByDiesel<R>(PhantomData<fn() -> R>);

/// As [`Returns`], with the conversion from the lock's own error.
pub struct ByOwn<R>(PhantomData<fn() -> R>);

/// As [`Returns`], with no conversion at all, so that the compile error names one.
pub struct ByNeither<R>(PhantomData<fn() -> R>);

/// A free function, because its bound is reported in full, and a method's as "method not found".
#[must_use]
pub const fn returns<R: Fallible>() -> Returns<R> {
    Returns(PhantomData)
}

/// Ends a locked call and converts its error with the `convert` beside it. It takes the result and returns it as the expansion's last
/// expression: a result that lives across an `await`, or a match on it, would cost compile time in each locked function.
macro_rules! finish {
    () => {
        #[cfg(feature = "diesel-async")]
        pub async fn finish<O: ?Sized>(
            self,
            guard: crate::LockGuard<'_, O>,
            result: Result<T, E>,
        ) -> Result<T, E> {
            match guard.end(result.is_ok()).await {
                Ok(()) => result,
                Err(error) => self.convert(error),
            }
        }
    };
}

/// The conversion that the attribute's `err` gives. The bound tells the compiler the type of a closure's parameter.
impl<T, E> Returns<Result<T, E>> {
    pub fn convert_by(&self, error: Error, by: impl FnOnce(Error) -> E) -> Result<T, E> {
        Err(by(error))
    }
}

impl<T, E: From<Error> + From<DieselError>> Returns<Result<T, E>> {
    pub fn convert(&self, error: Error) -> Result<T, E> {
        Err(match error {
            Error::Database(error) => error.into(),
            error => error.into(),
        })
    }

    finish! {}
}

impl<T, E: From<DieselError>> ByDiesel<Result<T, E>> {
    pub fn convert(&self, error: Error) -> Result<T, E> {
        Err(DieselError::from(error).into())
    }

    finish! {}
}

impl<T, E: From<Error>> ByOwn<Result<T, E>> {
    pub fn convert(&self, error: Error) -> Result<T, E> {
        Err(error.into())
    }

    finish! {}
}

impl<R> ByNeither<R> {
    pub fn convert(&self, _: Error) -> R
    where
        R: Fallible<Error: FromLockError>,
    {
        match <R::Error as FromLockError>::NEVER {}
    }

    /// Without a bound, so that the error is reported once, for `convert`.
    #[cfg(feature = "diesel-async")]
    pub fn finish<O: ?Sized>(self, _: crate::LockGuard<'_, O>, result: R) -> Ready<R> {
        ready(result)
    }
}

macro_rules! otherwise {
    ($($one:ident => $next:ident,)*) => { $(
        // `finish` takes it by value: a reference would live across its `await`.
        impl<R> Clone for $next<R> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<R> Copy for $next<R> {}

        impl<R> std::ops::Deref for $one<R> {
            type Target = $next<R>;

            fn deref(&self) -> &$next<R> {
                &$next(PhantomData)
            }
        }
    )* };
}
otherwise! {
    Returns => ByDiesel,
    ByDiesel => ByOwn,
    ByOwn => ByNeither,
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be made from an error of the lock or of the database",
    label = "this function can fail to take its lock or to commit",
    note = "if `{Self}` is a type of this crate, write `impl From<diesel::result::Error> for {Self}`, or `impl From<advisory_runtime::Error> for {Self}`, or both",
    note = "if it is a type of another crate, convert the error in the attribute: `err = |error| …`, where `error` is an `advisory_runtime::Error`"
)]
pub trait FromLockError {
    const NEVER: std::convert::Infallible;
}

/// Ends a locked call on a blocking connection, without converting the error.
#[cfg(feature = "postgres")]
pub fn finish_blocking_at<R: Fallible, O: ?Sized>(
    guard: crate::blocking::LockGuard<'_, O>,
    result: R,
) -> Result<R, Error> {
    crate::driver::answered(guard.end(result.is_ok()))?;
    Ok(result)
}

/// As [`finish_blocking_at`], on a connection of diesel-async.
#[cfg(feature = "diesel-async")]
pub async fn finish_async_at<R: Fallible, O: ?Sized>(
    guard: crate::LockGuard<'_, O>,
    result: R,
) -> Result<R, Error> {
    guard.end(result.is_ok()).await?;
    Ok(result)
}
