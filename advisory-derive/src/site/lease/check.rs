//! Mistakes in the combination of a lease site's arguments.

use crate::args::Args;
use crate::args::duration::Duration;
use crate::errors::Errors;
use crate::function::Function;
use proc_macro2::Span;

/// The runtime's default `ttl`, in milliseconds.
const DEFAULT_TTL: u64 = 60_000;

/// Checks that `on_held` and `on_done` are distinguished, and that a key can be done.
pub(crate) fn outcomes(args: &Args, errors: &mut Errors) {
    if args.has("keep") && !args.has("on_done") {
        let wanted = "`on_held` is returned only while another call holds the key, and that call can still fail; with `keep`, the key can also be done: \
                      add `on_done` with the value to return then, such as `on_done = Ok(())`, and let `on_held` return an error if the \
                      caller should try again, as a webhook's provider does";
        args.refuse("on_held", wanted, errors);
    }
    if !args.has("keep") {
        let wanted = "`on_done` needs a `keep`, because without one `Ok` frees the key, and the work runs again: add a time such \
                      as `keep = \"24h\"`; if another function keeps this key, match on `lease::Error::Done`";
        args.refuse("on_done", wanted, errors);
    }
}

pub(crate) fn times(args: &Args, errors: &mut Errors) {
    let Some((often, _)) = args.renew.as_ref().and_then(Duration::milliseconds) else {
        return;
    };
    let (ttl, default) = match &args.ttl {
        Some(ttl) => (ttl.milliseconds().map(|(ttl, _)| ttl), ""),
        None => (Some(DEFAULT_TTL), ", by default after `60s`"),
    };
    if let Some(ttl) = ttl.filter(|ttl| often >= *ttl) {
        // Two renewals can fail, and the lease is still held.
        let third = written(ttl / 3);
        let wanted = format_args!(
            "a lease must be renewed before its `ttl` ends{default}: write a shorter time, such as `renew = \"{third}\"`, or \
             leave it out"
        );
        args.refuse("renew", wanted, errors);
    }
}

/// Checks that the body can be dropped when the lease is lost.
pub(crate) fn is_async(function: &Function, errors: &mut Errors) {
    if function.is_blocking() {
        let name = &function.name;
        let wanted = format_args!(
            "a lease needs an `async fn`, because a blocking body cannot be dropped when its lease is lost: write `async fn {name}`, or acquire the lease in the body with `advisory_runtime::blocking::lease::acquire`, \
             which refuses the result of a body that returns too late"
        );
        errors.at(name.span(), wanted);
    }
}

/// Checks that the lease has a pool for its connections, and no connection.
pub(crate) fn pool(args: &Args, function: &Function, errors: &mut Errors) {
    let pool = function.pool_example();
    if let Some(span) = args.span("conn") {
        let wanted = if args.has("pool") {
            "leave `conn` out".to_owned()
        } else {
            format!("write `pool = {pool}` instead of `conn`")
        };
        let wanted = format_args!("a lease takes its connections from a pool: {wanted}");
        errors.at(span, wanted);
    } else if args.pool.is_none() && !args.has("pool") {
        let wanted = format_args!(
            "a lease needs a pool for its connections: write `pool = {pool}`, or another expression that gives one"
        );
        errors.at(args.span("key").unwrap_or_else(Span::call_site), wanted);
    }
}

fn written(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{}ms", milliseconds.max(1)),
        _ => format!("{}s", milliseconds / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use crate::written::{messages, rows};

    fn lease(args: &str) -> Vec<String> {
        messages(&format!(
            "#[advisory_lease(key = \"job\", {args})] async fn run(db: &Pool) -> Result<(), E> {{ Ok(()) }}"
        ))
    }

    #[test]
    fn a_pool_without_a_value_has_one_message() {
        assert_eq!(lease("ttl = \"60s\", pool"), ["write `pool = …`"]);
    }

    #[test]
    fn a_shorter_renewal_is_suggested_in_a_unit_that_has_it() {
        for [args, wanted] in rows(
            r#"
            pool = db, ttl = "2400ms", renew = "3s" => such as `renew = "800ms"`
            pool = db, ttl = "3s", renew = "3s" => such as `renew = "1s"`
            pool = db, ttl = "2ms", renew = "3s" => such as `renew = "1ms"`
        "#,
        ) {
            let messages = lease(args);
            assert!(
                messages.len() == 1 && messages[0].contains(wanted),
                "{args}: {messages:?}"
            );
        }
        let one_less = lease("pool = db, ttl = \"3s\", renew = \"2999ms\"");
        assert_eq!(one_less, [""; 0]);
    }
}
