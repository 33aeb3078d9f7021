//! Mistakes that the site of a lock and that of a lease can have.

use super::keys::SiteKeys;
use crate::args::Args;
use crate::args::duration::Wait;
use crate::errors::Errors;
use crate::function::Function;
use crate::key_pattern::{Ambiguity, check_with};

pub(crate) fn keys(
    keys: &SiteKeys,
    function: &Function,
    ambiguity: Ambiguity,
    errors: &mut Errors,
) {
    let names = keys.names(function);
    for pattern in keys.patterns() {
        pattern.check(&names, ambiguity, errors);
    }
    check_with(&keys.with, keys.patterns(), errors);
}

/// Checks that the wait of a call that has a value for its end does end.
pub(crate) fn on_held(args: &Args, errors: &mut Errors) {
    let instead = match args.wait {
        None if !args.has("wait") => "add",
        Some(Wait::Forever) => "replace `wait = \"forever\"` with",
        _ => return,
    };
    let wanted = format_args!(
        "`on_held` needs a wait that ends: {instead} `wait = \"never\"`, or a time such as `wait = \"5s\"`"
    );
    args.refuse("on_held", wanted, errors);
}

/// Checks that the body's name for the lock is not taken, be it by a parameter or by the connection
/// that the attribute binds.
pub(crate) fn handle(args: &Args, has_connection: bool, function: &Function, errors: &mut Errors) {
    let Some(handle) = &args.handle else { return };
    if function.has_param(&handle.to_string()) || has_connection && handle == "conn" {
        let wanted = format_args!(
            "`{handle}` is already used in `{}`: write another name, such as `handle = lock`",
            function.name
        );
        errors.at(handle.span(), wanted);
    }
}
