//! Was the runtime built with the back end that a function needs?
//!
//! `advisory-runtime` switches the features of these names on here, so that a feature that is off is one error, and not one for each
//! item that the expansion would name.

use crate::errors::Errors;
use crate::function::Function;

pub(crate) fn check(function: &Function, errors: &mut Errors) {
    let message = match (
        function.is_blocking(),
        cfg!(feature = "postgres"),
        cfg!(feature = "diesel-async"),
    ) {
        (true, true, _) | (false, _, true) => return,
        (true, false, _) => {
            "a lock on a plain `fn` needs the feature `postgres` of `advisory-runtime`: write `features = [\"postgres\"]` in \
             `Cargo.toml`; for a connection of diesel-async write `async fn`"
        }
        (false, _, false) => {
            "a lock on an `async fn` needs the feature `diesel-async` of `advisory-runtime`, which is on by default: remove \
             `default-features = false` in `Cargo.toml`, or write `features = [\"diesel-async\"]`"
        }
    };
    errors.at(function.name.span(), message);
}
