//! Mistakes in the arguments of a lease, and arguments of a lease at other scopes.

use super::connection::pool_of;
use super::keys::SiteKeys;
use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use proc_macro2::Span;

/// The runtime's default `ttl`, in milliseconds.
const DEFAULT_TTL: u64 = 60_000;

/// Checks that the arguments are for a lease, and that its times fit.
pub(crate) fn arguments(args: &Args, keys: &SiteKeys, errors: &mut Errors) {
    if !args.is_lease() {
        return;
    }
    let unfit = [
        ("keys", "a lease has one key: write `key = …`"),
        ("mode", "a lease has one holder: leave `mode` out"),
        (
            "isolation",
            "`isolation` needs a transaction, and `scope = \"lease\"` does not begin one: leave it out",
        ),
        (
            "nested",
            "`nested` needs a transaction, and `scope = \"lease\"` does not begin one: leave it out",
        ),
        (
            "poll",
            "a lease already polls while it waits: leave `poll` out",
        ),
        (
            "poll_max",
            "a lease already polls while it waits: leave `poll_max` out",
        ),
        (
            "permits",
            "a lease has one holder: leave `permits` out, or write `scope = \"session\"`",
        ),
        (
            "queue",
            "a call that waits for a lease keeps no connection: leave `queue` out",
        ),
        (
            "derivation",
            "the key of a lease is its text, not a number: leave `derivation` out",
        ),
        (
            "guards",
            "a trigger cannot see who holds a lease: leave `guards` out, and check the fencing token in the write",
        ),
    ];
    args.refuse(&unfit, errors);
    // With `keys` there is an error already.
    if !args.has("keys") {
        for pattern in keys.patterns() {
            if pattern.is_pair() {
                let text = pattern.literal.value();
                let wanted = format_args!(
                    "the key of a lease is a text, not two numbers: write `key = \"{text}\"`, with a word of its own in front"
                );
                errors.at(pattern.literal.span(), wanted);
            }
            if let Some(slice) = pattern.slice() {
                let wanted = format_args!(
                    "`<{}>` would be several leases: name a single value",
                    slice.source
                );
                errors.at(pattern.literal.span(), wanted);
            }
        }
    }
    outcomes(args, errors);
    if let Some(renew) = &args.renew
        && let Some((often, _)) = renew.milliseconds()
    {
        let (ttl, whose) = match &args.ttl {
            Some(ttl) => (ttl.milliseconds().map(|(ttl, _)| ttl), ""),
            None => (Some(DEFAULT_TTL), ", by default after `60s`"),
        };
        if let Some(ttl) = ttl.filter(|ttl| often >= *ttl)
            && let Some(span) = args.span("renew")
        {
            // Two renewals can fail, and the lease is still held.
            let third = written(ttl / 3);
            let wanted = format_args!(
                "a lease must be renewed before its `ttl` ends{whose}: write a shorter time, such as `renew = \"{third}\"`, or \
                 leave it out"
            );
            errors.at(span, wanted);
        }
    }
}

/// Checks that work that is done and work that somebody does are answered apart, and that work can be done at all.
fn outcomes(args: &Args, errors: &mut Errors) {
    if args.has("keep")
        && !args.has("on_done")
        && let Some(span) = args.span("on_held")
    {
        let wanted = "with `keep`, a key is also taken because its work is done, and `on_held` is returned only while somebody does it, \
                      who can still fail: add `on_done` with the result of a call whose work is done, such as `on_done = Ok(())`, and \
                      let `on_held` return an error if the caller is to try again, as a webhook's provider does";
        errors.at(span, wanted);
    }
    if let Some(span) = args.span("on_done")
        && !args.has("keep")
    {
        let wanted = "`on_done` needs a `keep`, because without it an `Ok` leaves the key free and the work runs again: add a time such \
                      as `keep = \"24h\"`; if another function keeps this key, match on `lease::Error::Done`";
        errors.at(span, wanted);
    }
}

/// Checks that the function fits a lease, or else that no argument needs one.
pub(crate) fn function(args: &Args, function: &Function, errors: &mut Errors) {
    if !args.is_lease() {
        if !args.scope_is_wrong() {
            lease_only_arguments(args, errors);
        }
        return;
    }
    let name = &function.name;
    if function.is_blocking() {
        let wanted = format_args!(
            "only an `async fn` can renew a lease while its body runs: write `async fn {name}`, or \
             `scope = \"session\"`"
        );
        errors.at(name.span(), wanted);
        return;
    }
    if let Some(span) = args.span("conn") {
        let wanted = match pool(args, function) {
            _ if args.has("pool") => "leave `conn` out".to_owned(),
            Some(pool) => format!("write `pool = {pool}` instead of `conn`"),
            None => format!("{} instead of `conn`", parameter()),
        };
        let wanted = format_args!("a lease takes its connections from `pool`: {wanted}");
        errors.at(span, wanted);
    } else if !args.has("pool") {
        let wanted = match pool(args, function) {
            Some(pool) => format!("write `pool = {pool}`"),
            None => parameter(),
        };
        let wanted = format_args!("a lease needs a `pool` for its connections: {wanted}");
        errors.at(args.span("scope").unwrap_or_else(Span::call_site), wanted);
    }
}

/// Refuses the arguments of a lease at another scope.
fn lease_only_arguments(args: &Args, errors: &mut Errors) {
    for name in ["ttl", "renew", "keep", "on_done"] {
        if let Some(span) = args.span(name) {
            let wanted =
                format_args!("`{name}` is for a lease: write `scope = \"lease\"`, or leave it out");
            errors.at(span, wanted);
        }
    }
}

/// A suggestion for `pool`: what `conn` takes a connection from, a parameter, or a field.
fn pool(args: &Args, function: &Function) -> Option<String> {
    let conn = args.conn.as_ref();
    if let Some(pool) = conn.and_then(|conn| pool_of(&conn.to_string())) {
        return Some(pool);
    }
    let param = function.params.iter().find(|param| param.is_pool());
    let param = param
        .and_then(|param| param.names.first())
        .map(ToString::to_string);
    param.or_else(|| function.receiver.map(|_| "self.pool".to_owned()))
}

fn parameter() -> String {
    "add a parameter `pool: &Pool<AsyncPgConnection>` and write `pool = pool`".to_owned()
}

/// A time as an argument writes it.
fn written(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{}ms", milliseconds.max(1)),
        _ => format!("{}s", milliseconds / 1_000),
    }
}
