//! What is wrong with the arguments of a lease, and with a lease's arguments where there is none.

use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use crate::locked::Locked;
use proc_macro2::Span;

/// How long a grant lasts unless the site says so, in milliseconds: the runtime's default.
const TTL: u64 = 60_000;

/// Arguments that a lease has no use for, and times that do not fit.
pub(crate) fn arguments(args: &Args, locked: &Locked, errors: &mut Errors) {
    if !args.is_lease() {
        return;
    }
    let in_vain = [
        (
            "keys",
            "`keys` is several locks, and a lease is one: write `key = …`",
        ),
        (
            "mode",
            "a lease has one holder, whatever the `mode`: leave it out",
        ),
        (
            "isolation",
            "`isolation` is for a transaction, and `scope = \"lease\"` begins none: leave it out",
        ),
        (
            "nested",
            "`nested` is for a transaction, and `scope = \"lease\"` begins none: leave it out",
        ),
        (
            "queue",
            "`queue` is for locks whose waiters each keep a connection, and a lease's keep none: leave it out",
        ),
        (
            "derivation",
            "`derivation` makes a number of a key, and a lease's key stays a text: leave it out",
        ),
    ];
    for (name, wanted) in in_vain {
        if let Some(place) = args.place(name) {
            errors.at(place, wanted);
        }
    }
    // `keys` has been told already.
    if !args.has("keys") {
        for pattern in locked.patterns() {
            if let Some(slice) = pattern.slice() {
                let wanted = format_args!(
                    "`<{}>` would be several leases, and a lease is one: name a single value",
                    slice.source
                );
                errors.at(pattern.literal.span(), wanted);
            }
        }
    }
    if let Some(renew) = &args.renew
        && let Some((often, _)) = renew.milliseconds()
    {
        let (ttl, whose) = match &args.ttl {
            Some(ttl) => (ttl.milliseconds().map(|(ttl, _)| ttl), ""),
            None => (Some(TTL), ", which is `\"60s\"` unless it is given"),
        };
        if let Some(ttl) = ttl.filter(|ttl| often >= *ttl)
            && let Some(place) = args.place("renew")
        {
            // Two renewals can fail, and the lease is still held.
            let third = written(ttl / 3);
            let wanted = format_args!(
                "a lease is renewed before its `ttl` is over{whose}: write a shorter time, such as `renew = \"{third}\"`, or \
                 leave it out"
            );
            errors.at(place, wanted);
        }
    }
}

/// What a lease needs of its function, and what needs a lease.
pub(crate) fn function(args: &Args, function: &Function, errors: &mut Errors) {
    if !args.is_lease() {
        if !args.scope_is_wrong() {
            needless(args, function, errors);
        }
        return;
    }
    let name = &function.name;
    if function.is_blocking() {
        let wanted = format_args!(
            "a lease is renewed beside the body, and `{name}` is no `async fn`: write `async fn {name}`, or \
             `scope = \"session\"`"
        );
        errors.at(name.span(), wanted);
        return;
    }
    if let Some(place) = args.place("conn") {
        let wanted = match pool(args, function) {
            _ if args.has("pool") => "leave `conn` out".to_owned(),
            Some(pool) => format!("write `pool = {pool}` in its place"),
            None => format!("{} in its place", parameter()),
        };
        let wanted = format_args!("a lease takes its connections from `pool`: {wanted}");
        errors.at(place, wanted);
    } else if !args.has("pool") {
        let wanted = match pool(args, function) {
            Some(pool) => format!("write `pool = {pool}`"),
            None => parameter(),
        };
        let wanted = format_args!(
            "`pool` is missing: a lease takes a connection when it is acquired, renewed and released; {wanted}"
        );
        errors.at(args.place("scope").unwrap_or_else(Span::call_site), wanted);
    }
}

/// Arguments of a lease where there is none.
fn needless(args: &Args, function: &Function, errors: &mut Errors) {
    for name in ["ttl", "renew", "keep"] {
        if let Some(place) = args.place(name) {
            let wanted =
                format_args!("`{name}` is for a lease: write `scope = \"lease\"`, or leave it out");
            errors.at(place, wanted);
        }
    }
    if let Some(place) = args.place("pool") {
        let pool = args.pool.as_ref();
        let pool = pool.map_or_else(
            || "self.pool".to_owned(),
            |pool| pool.to_string().replace(' ', ""),
        );
        let get = function.get();
        let wanted = format_args!(
            "`pool` is for a lease: write `scope = \"lease\"`, or for a connection out of it `conn = {pool}{get}`"
        );
        errors.at(place, wanted);
    }
}

/// Where this function may have its pool: what `conn` takes a connection from, a parameter, a field.
fn pool(args: &Args, function: &Function) -> Option<String> {
    let conn = args
        .conn
        .as_ref()
        .map(|conn| conn.to_string().replace(' ', ""));
    let taken = conn.as_ref().and_then(|conn| {
        let ends = [".get().await?", ".get().await", ".get()?", ".get()"];
        ends.iter().find_map(|end| conn.strip_suffix(end))
    });
    if let Some(pool) = taken {
        return Some(pool.to_owned());
    }
    let param = function
        .params
        .iter()
        .find(|param| param.ty.to_string().contains("Pool"));
    let param = param
        .and_then(|param| param.names.first())
        .map(ToString::to_string);
    param.or_else(|| function.receiver.map(|_| "self.pool".to_owned()))
}

fn parameter() -> String {
    "add a parameter `pool: &Pool<AsyncPgConnection>` and write `pool = pool`".to_owned()
}

/// Milliseconds as they are written in an argument.
fn written(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{}ms", milliseconds.max(1)),
        _ => format!("{}s", milliseconds / 1_000),
    }
}
