//! The error for a function that needs a back end which the runtime was built without.
//!
//! `advisory-runtime` switches the features of these names on here, so that a feature that is off
//! is one error, and not one for each item that the expansion would name. Unit tests have no
//! runtime, and expand for both.

use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::function::Function;

pub(crate) fn check(function: &Function, attribute: Attribute, errors: &mut Errors) {
    let (is_on, message) = if attribute == Attribute::Lease {
        // A plain `fn` has another error.
        (
            cfg!(any(test, feature = "diesel-async")) || function.is_blocking(),
            "a lease needs the feature `diesel-async` of `advisory-runtime`, which is on by default: remove \
             `default-features = false` in `Cargo.toml`, or write `features = [\"diesel-async\"]`",
        )
    } else if function.is_blocking() {
        (
            cfg!(any(test, feature = "postgres")),
            "a lock on a plain `fn` needs the feature `postgres` of `advisory-runtime`: write `features = [\"postgres\"]` in \
             `Cargo.toml`; for a connection of diesel-async write `async fn`",
        )
    } else {
        (
            cfg!(any(test, feature = "diesel-async")),
            "a lock on an `async fn` needs the feature `diesel-async` of `advisory-runtime`, which is on by default: remove \
             `default-features = false` in `Cargo.toml`, or write `features = [\"diesel-async\"]`",
        )
    };
    if !is_on {
        errors.at(function.name.span(), message);
    }
}
