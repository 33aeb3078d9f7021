//! How an error of the lock becomes the error of the user's function.
//!
//! A user's type may have `From<diesel::result::Error>`, `From<advisory_runtime::Error>`, or both. Which one it has is
//! found by method resolution on a type that is known where the macro expands: a method that takes `&&&Returns` by value
//! is tried before one that takes `&&Returns`, and so on.
#![allow(
    missing_docs,
    reason = "for the expansion alone; what is not obvious is said"
)]

use crate::Error;
use diesel::result::Error as DieselError;
use std::marker::PhantomData;

/// The return type of the annotated function.
pub struct Returns<R>(PhantomData<fn() -> R>);

/// A function, since a bound on it is reported in full and one on a method as a method not found.
#[must_use]
pub const fn returns<R: Fallible>() -> Returns<R> {
    Returns(PhantomData)
}

/// Tells inference what an `impl Trait` in the return type is.
pub const fn same<R>(_: &Returns<R>, _: &R) {}

#[diagnostic::on_unimplemented(
    message = "a locked function returns `Result`, and this one returns `{Self}`",
    label = "expected `Result<_, _>`",
    note = "taking the lock can fail; write `-> QueryResult<{Self}>`, or a `Result` with your own error type"
)]
pub trait Fallible {
    type Error;
}

impl<T, E> Fallible for Result<T, E> {
    type Error = E;
}

pub trait ConvertBoth<E> {
    fn convert(self, error: Error) -> E;
}

impl<T, E: From<Error> + From<DieselError>> ConvertBoth<E> for &&&Returns<Result<T, E>> {
    fn convert(self, error: Error) -> E {
        match error {
            Error::Database(error) => error.into(),
            error => error.into(),
        }
    }
}

pub trait ConvertDiesel<E> {
    fn convert(self, error: Error) -> E;
}

impl<T, E: From<DieselError>> ConvertDiesel<E> for &&Returns<Result<T, E>> {
    fn convert(self, error: Error) -> E {
        DieselError::from(error).into()
    }
}

pub trait ConvertOwn<E> {
    fn convert(self, error: Error) -> E;
}

impl<T, E: From<Error>> ConvertOwn<E> for &Returns<Result<T, E>> {
    fn convert(self, error: Error) -> E {
        error.into()
    }
}

/// Chosen when there is no conversion at all, so that the compile error names one.
pub trait ConvertNeither<R> {
    fn convert(self, error: Error) -> R::Error
    where
        R: Fallible<Error: FromLockError>;
}

impl<R> ConvertNeither<R> for Returns<R> {
    fn convert(self, _: Error) -> R::Error
    where
        R: Fallible<Error: FromLockError>,
    {
        match <R::Error as FromLockError>::NEVER {}
    }
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be made from an error of the lock or of the database",
    label = "this function can fail to take its lock or to commit",
    note = "write `impl From<diesel::result::Error> for {Self}`, or `impl From<advisory_runtime::Error> for {Self}`, or both"
)]
pub trait FromLockError {
    const NEVER: std::convert::Infallible;
}

/// The value of a `return` that never runs, and pins the type of the block that it stands in.
#[must_use]
#[expect(
    clippy::empty_loop,
    reason = "never runs: every call stands in `if false`"
)]
pub fn never<R>() -> R {
    loop {}
}
