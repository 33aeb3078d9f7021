//! Mistakes in a lock site whose parts are each well-formed.

use super::connection::{Connection, argument_for};
use super::keys::{SiteKey, SiteKeys};
use crate::args::Args;
use crate::args::duration::{Duration, Wait};
use crate::errors::Errors;
use crate::function::Function;
use crate::key_pattern::check_with;
use crate::tokens::is_punct;
use proc_macro2::{Span, TokenStream, TokenTree};

/// Checks that the keys use names of the function.
pub(crate) fn keys(keys: &SiteKeys, function: &Function, errors: &mut Errors) {
    let names = keys.names(function);
    for pattern in keys.patterns() {
        pattern.check(&names, keys.may_be_ambiguous, errors);
    }
    check_with(&keys.with, keys.patterns(), errors);
}

/// Checks that arguments for a key pattern, or for a slice, come with one.
pub(crate) fn pattern_arguments(args: &Args, keys: &SiteKeys, errors: &mut Errors) {
    let has_slice = keys.patterns().any(|pattern| pattern.slice().is_some());
    let has_slice = has_slice || matches!(keys.list.as_slice(), [SiteKey::Each(_)]);
    if let Some(max) = &args.max_keys
        && !has_slice
        && !keys.list.is_empty()
    {
        errors.at(
            max.span(),
            "`max_keys` is only for a slice such as `<ids*>`: leave it out",
        );
    }
    // A lease has neither pairs nor a derivation.
    if !args.is_lease() {
        for pattern in keys.patterns() {
            pattern.check_half(args.derivation, args.span("derivation"), errors);
        }
    }
    let only_expressions = keys
        .list
        .iter()
        .all(|key| !matches!(key, SiteKey::Pattern(_)));
    if only_expressions && !keys.list.is_empty() {
        for name in ["derivation", "allow_ambiguous"] {
            // For a lease `check_lease` reports it, whatever the key is.
            let is_reported = name == "derivation" && args.is_lease();
            if let Some(span) = args.span(name)
                && !is_reported
            {
                let wanted = format_args!(
                    "`{name}` needs a key pattern, and this key is an expression: write it where the key is declared"
                );
                errors.at(span, wanted);
            }
        }
    }
}

/// Checks arguments that need another one, or exclude it.
pub(crate) fn combinations(args: &Args, errors: &mut Errors) {
    if let Some(span) = args.span("on_held") {
        let end = "`wait = \"never\"`, or a time such as `wait = \"5s\"`";
        if !args.has("wait") {
            errors.at(
                span,
                format_args!("`on_held` needs a wait that ends: add {end}"),
            );
        } else if matches!(args.wait, Some(Wait::Forever)) {
            errors.at(
                span,
                format_args!(
                    "`on_held` needs a wait that ends: replace `wait = \"forever\"` with {end}"
                ),
            );
        }
    }
    if let Some(span) = args.span("poll")
        && !args.is_lease()
    {
        poll(args, span, errors);
    }
    if let Some(span) = args.span("poll_max")
        && !args.is_lease()
    {
        poll_max(args, span, errors);
    }
    if args.is_session() {
        let unfit = [
            (
                "isolation",
                "`isolation` needs a transaction, and `scope = \"session\"` does not begin one: leave it out",
            ),
            (
                "nested",
                "`scope = \"session\"` is always refused inside a transaction: leave `nested` out",
            ),
        ];
        args.refuse(&unfit, errors);
    }
    if let Some(span) = args.span("queue")
        && args.is_shared()
        && !args.is_lease()
    {
        let wanted = "`queue` admits one call at a time, and `mode = \"shared\"` several: leave \
                      `queue` out";
        errors.at(span, wanted);
    }
}

/// Checks that a call that polls has time for more than two tries.
fn poll(args: &Args, span: Span, errors: &mut Errors) {
    let wait = match &args.wait {
        Some(Wait::Never) => {
            let wanted = "`wait = \"never\"` tries only once: write a time such as `wait = \"5m\"`, or \
                          leave `poll` out";
            return errors.at(span, wanted);
        }
        Some(Wait::For(wait)) => wait.milliseconds(),
        Some(Wait::Forever) | None => None,
    };
    let poll = args.poll.as_ref().and_then(Duration::milliseconds);
    if let (Some((wait, _)), Some((poll, _))) = (wait, poll)
        && poll >= wait
    {
        let wanted = format_args!(
            "`poll` must be shorter than `wait`: write a shorter time, such as `poll = \"{}ms\"`",
            (wait / 10).max(1)
        );
        errors.at(span, wanted);
    }
}

/// Checks that the longest pause is not shorter than the first.
fn poll_max(args: &Args, span: Span, errors: &mut Errors) {
    let Some(poll) = &args.poll else {
        if !args.has("poll") {
            let wanted = "`poll_max` is the longest pause between two tries: add the first pause, such as `poll = \"250ms\"`";
            errors.at(span, wanted);
        }
        return;
    };
    let longest = args.poll_max.as_ref().and_then(Duration::milliseconds);
    if let (Some((first, _)), Some((longest, _))) = (poll.milliseconds(), longest)
        && longest < first
    {
        let wanted = format_args!(
            "`poll_max` must not be shorter than `poll`: for pauses that do not grow write `poll_max = \"{}\"`",
            poll.written
        );
        errors.at(span, wanted);
    }
}

/// Checks that calls wait in a queue before they take a connection.
pub(crate) fn queue(args: &Args, connection: &Connection, errors: &mut Errors) {
    if let Some(span) = args.span("queue")
        && let Connection::Place { root, fields, .. } = connection
    {
        let wanted = format_args!(
            "with `queue` a call waits before it takes a connection, but `{root}{fields}` is already one: write where it comes \
             from, such as `pool = self.pool`"
        );
        errors.at(span, wanted);
    }
}

/// Checks that the body's name for the lock is not taken.
pub(crate) fn handle(
    args: &Args,
    connection: &Connection,
    function: &Function,
    errors: &mut Errors,
) {
    let Some(handle) = &args.handle else { return };
    let is_param = function
        .params
        .iter()
        .any(|param| param.names.contains(handle));
    let is_connection = connection.source().is_some() && handle == "conn";
    if is_param || is_connection {
        let wanted = format_args!(
            "`{handle}` is already used in `{}`: write another name, such as `handle = lock`",
            function.name
        );
        errors.at(handle.span(), wanted);
    }
}

/// Checks that the body does not bind another connection under the name of the one that holds the lock.
pub(crate) fn connection_shadowing(
    connection: &Connection,
    function: &Function,
    errors: &mut Errors,
) {
    let name = match connection {
        Connection::Place { root, fields, .. } if fields.is_empty() => root.to_string(),
        Connection::Place { .. } | Connection::Lease(_) => return,
        Connection::Expression(_) | Connection::Pool(_) => "conn".to_owned(),
    };
    let Some(binding) = function.body_binding(&name) else {
        return;
    };
    if binding.mentions_itself {
        return;
    }
    let from = binding.value;
    let instead = match connection {
        Connection::Place { .. } => {
            let wanted = argument_for(&from);
            format!("remove this line, or replace the parameter with `{wanted}` in the attribute")
        }
        Connection::Expression(_) | Connection::Pool(_) | Connection::Lease(_) => {
            "remove this line, because the attribute has already taken the connection".to_owned()
        }
    };
    errors.at(
        binding.span,
        format_args!("this `{name}` is not the connection that holds the lock: {instead}"),
    );
}

/// Checks that no format string names `self` where the body has it under another name, with `conn = self.conn`: the expansion does not
/// rename it inside of literals.
pub(crate) fn self_in_text(connection: &Connection, function: &Function, errors: &mut Errors) {
    if let Connection::Place { root, .. } = connection
        && root == "self"
        && let Some(literal) = text_with_self(function.body.stream())
    {
        let wanted = "a format string cannot capture `self` here: write `\"{}\", self` instead of `\"{self}\"`";
        errors.at(literal.span(), wanted);
    }
}

/// A literal that names `self` among the arguments of a macro, where it can be a format string.
fn text_with_self(tokens: TokenStream) -> Option<TokenTree> {
    let mut after_bang = false;
    for token in tokens {
        let found = match &token {
            TokenTree::Group(group) if after_bang => group.stream().into_iter().find(names_self),
            _ => None,
        };
        let nested = match &token {
            TokenTree::Group(group) => text_with_self(group.stream()),
            _ => None,
        };
        if let Some(literal) = found.or(nested) {
            return Some(literal);
        }
        after_bang = is_punct(&token, '!');
    }
    None
}

fn names_self(token: &TokenTree) -> bool {
    let TokenTree::Literal(literal) = token else {
        return false;
    };
    let text = literal.to_string().replace("{{", "");
    text.contains("{self}") || text.contains("{self:")
}
