//! Converts an error of a lock or of a lease into the error of the user's function.
//!
//! A user's type may have `From<diesel::result::Error>`, `From` of the product's error, or both.
//! Method resolution finds out which: `convert` on [`Returns`] needs both; if the type does not
//! have both, the compiler looks at what [`Returns`] dereferences to. The methods are inherent,
//! since a trait's would have to be imported at each lock site.
#![allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::unused_self,
    reason = "method resolution on the type is what chooses the conversion"
)]

use crate::Error;
use crate::error::{Fallible, ProductError, into_diesel};
#[cfg(feature = "diesel-async")]
use crate::lease;
use diesel::result::Error as DieselError;
#[cfg(feature = "diesel-async")]
use std::future::{Ready, ready};
use std::marker::PhantomData;

/// The return type of the annotated function, and the product's error. For an error type with both
/// conversions.
pub struct Returns<R, P = Error>(PhantomData<fn(P) -> R>);

/// Like [`Returns`], with the conversion from Diesel's error.
pub struct ByDiesel<R, P = Error>(PhantomData<fn(P) -> R>);

/// Like [`Returns`], with the conversion from the product's own error.
pub struct ByOwn<R, P = Error>(PhantomData<fn(P) -> R>);

/// Like [`Returns`], with no conversion at all, so that the compile error names one.
pub struct ByNeither<R, P = Error>(PhantomData<fn(P) -> R>);

/// A free function, because the compiler reports its bound in full, and that of a method as "method
/// not found".
#[must_use]
pub const fn returns<R: Fallible>() -> Returns<R> {
    Returns(PhantomData)
}

/// Like [`returns`], for a function under a lease.
#[cfg(feature = "diesel-async")]
#[must_use]
pub const fn returns_leased<R: Fallible>() -> Returns<R, lease::Error> {
    Returns(PhantomData)
}

/// Ends a locked call and converts its error with the `convert` next to it. It takes the result and
/// returns it as the expansion's last expression: a result that lives across an `await`, or a match
/// on it, would cost compile time in each locked function.
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

/// The conversion that the attribute's `err` gives. The bound tells the compiler the type of a
/// closure's parameter.
impl<T, E, P> Returns<Result<T, E>, P> {
    pub fn convert_by(&self, error: P, by: impl FnOnce(P) -> E) -> Result<T, E> {
        Err(by(error))
    }
}

impl<T, E: From<P> + From<DieselError>, P: ProductError> Returns<Result<T, E>, P> {
    pub fn convert(&self, error: P) -> Result<T, E> {
        Err(match error.into_database() {
            Ok(error) => error.into(),
            Err(error) => error.into(),
        })
    }
}

impl<T, E: From<Error> + From<DieselError>> Returns<Result<T, E>> {
    finish! {}
}

impl<T, E: From<DieselError>, P: ProductError> ByDiesel<Result<T, E>, P> {
    pub fn convert(&self, error: P) -> Result<T, E> {
        Err(into_diesel(error).into())
    }
}

impl<T, E: From<DieselError>> ByDiesel<Result<T, E>> {
    finish! {}
}

impl<T, E: From<P>, P> ByOwn<Result<T, E>, P> {
    pub fn convert(&self, error: P) -> Result<T, E> {
        Err(error.into())
    }
}

impl<T, E: From<Error>> ByOwn<Result<T, E>> {
    finish! {}
}

#[cfg(feature = "diesel-async")]
impl<R> ByNeither<R, lease::Error> {
    pub fn convert(&self, _: lease::Error) -> R
    where
        R: Fallible<Error: FromLeaseError>,
    {
        match <R::Error as FromLeaseError>::NEVER {}
    }
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
        impl<R, P> Clone for $next<R, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<R, P> Copy for $next<R, P> {}

        impl<R, P> std::ops::Deref for $one<R, P> {
            type Target = $next<R, P>;

            fn deref(&self) -> &$next<R, P> {
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

#[cfg(feature = "diesel-async")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be made from an error of the lease or of the database",
    label = "this function can fail to acquire its lease or to keep it",
    note = "if `{Self}` is a type of this crate, write `impl From<diesel::result::Error> for {Self}`, or `impl From<advisory_runtime::lease::Error> for {Self}`, or both",
    note = "if it is a type of another crate, convert the error in the attribute: `err = |error| …`, where `error` is an `advisory_runtime::lease::Error`"
)]
pub trait FromLeaseError {
    const NEVER: std::convert::Infallible;
}

/// Ends a locked call on a blocking connection, without converting the error.
#[cfg(feature = "postgres")]
pub fn finish_blocking_at<R: Fallible, O: ?Sized>(
    guard: crate::blocking::LockGuard<'_, O>,
    result: R,
) -> Result<R, Error> {
    crate::driver::block_on(guard.end(result.is_ok()))?;
    Ok(result)
}

/// Like [`finish_blocking_at`], on a connection of diesel-async.
#[cfg(feature = "diesel-async")]
pub async fn finish_async_at<R: Fallible, O: ?Sized>(
    guard: crate::LockGuard<'_, O>,
    result: R,
) -> Result<R, Error> {
    guard.end(result.is_ok()).await?;
    Ok(result)
}
