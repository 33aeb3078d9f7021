//! The return type of a locked function.

#![allow(
    missing_docs,
    reason = "for the expansion alone; what is not obvious is said"
)]

#[diagnostic::on_unimplemented(
    message = "a locked function must return a `Result`, and this one returns `{Self}`",
    label = "expected `Result<_, _>`",
    note = "acquiring the lock can fail: write `-> QueryResult<{Self}>`, or a `Result` with your own error type"
)]
pub trait Fallible {
    type Error;

    fn is_ok(&self) -> bool;
}

impl<T, E> Fallible for Result<T, E> {
    type Error = E;

    fn is_ok(&self) -> bool {
        self.is_ok()
    }
}

/// The value of a `return` that never runs, which fixes the type of the block around it.
#[must_use]
#[expect(clippy::empty_loop, reason = "never runs: every call is in `if false`")]
pub fn never<R>() -> R {
    loop {}
}
