//! What is wrong with a site whose parts are each well-formed.

use crate::args::Args;
use crate::connection::Connection;
use crate::duration::Wait;
use crate::errors::Errors;
use crate::function::Function;
use crate::key::KeyPattern;
use crate::locked::{Key, Locked};
use crate::tokens::is_punct;
use proc_macro2::{Ident, TokenStream, TokenTree};

/// Keys that each parse, under the names that the function gives them.
pub(crate) fn keys(locked: &Locked, function: &Function, errors: &mut Errors) {
    let names = locked.names(function);
    for pattern in locked.patterns() {
        pattern.check(&names, locked.may_be_ambiguous, errors);
    }
    used(&locked.with, locked.patterns(), errors);
}

/// Arguments that say something of a key pattern, where there is none, or of a slice.
pub(crate) fn idle(args: &Args, locked: &Locked, errors: &mut Errors) {
    let has_slice = locked.patterns().any(|pattern| pattern.slice().is_some());
    let has_slice = has_slice || matches!(locked.keys.as_slice(), [Key::Each(_)]);
    if let Some(max) = &args.max_keys
        && !has_slice
        && !locked.keys.is_empty()
    {
        errors.at(
            max.span(),
            "`max_keys` is for a slice, `<ids*>`: leave it out",
        );
    }
    let only_expressions = locked
        .keys
        .iter()
        .all(|key| !matches!(key, Key::Pattern(_)));
    if only_expressions && !locked.keys.is_empty() {
        for name in ["derivation", "allow_ambiguous"] {
            // A lease has none, whatever its key.
            let is_told = name == "derivation" && args.is_lease();
            if let Some(place) = args.place(name)
                && !is_told
            {
                let wanted = format_args!(
                    "`{name}` is for a key pattern, and this key has none: write it where the key is declared"
                );
                errors.at(place, wanted);
            }
        }
    }
}

/// Arguments that need another one, or that another one rules out.
pub(crate) fn together(args: &Args, errors: &mut Errors) {
    if let Some(place) = args.place("on_held") {
        let end = "`wait = \"never\"`, or a time such as `wait = \"5s\"`";
        if !args.has("wait") {
            errors.at(
                place,
                format_args!(
                    "without an end of the wait there is nothing for `on_held` to do: add {end}"
                ),
            );
        } else if matches!(args.wait, Some(Wait::Forever)) {
            errors.at(place, format_args!("`wait = \"forever\"` never gives up, so there is nothing for `on_held` to do: write {end}"));
        }
    }
    if args.is_session() {
        let in_vain = [
            (
                "isolation",
                "`isolation` is for a transaction, and `scope = \"session\"` begins none: leave it out",
            ),
            (
                "nested",
                "`nested` is for a transaction, and `scope = \"session\"` is always refused inside one: leave it out",
            ),
        ];
        for (name, wanted) in in_vain {
            if let Some(place) = args.place(name) {
                errors.at(place, wanted);
            }
        }
    }
    if let Some(place) = args.place("queue")
        && args.is_shared()
        && !args.is_lease()
    {
        let wanted = "`queue` has calls ask one after the other, and `mode = \"shared\"` is for calls that run together: leave \
                      `queue` out";
        errors.at(place, wanted);
    }
}

/// A queue is in front of the connection.
pub(crate) fn queue(
    args: &Args,
    connection: &Connection,
    function: &Function,
    errors: &mut Errors,
) {
    if let Some(place) = args.place("queue")
        && let Connection::Place { root, fields, .. } = connection
    {
        let get = function.get();
        let wanted = format_args!(
            "`queue` has calls wait before they take a connection, and `{root}{fields}` is one already: write where it comes \
             from, such as `conn = self.pool{get}`"
        );
        errors.at(place, wanted);
    }
}

/// The body's name for the lock is no other name of the function.
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
    let is_connection = matches!(connection, Connection::Expression(_)) && handle == "conn";
    if is_param || is_connection {
        let wanted = format_args!(
            "`{handle}` has a meaning in `{}` already: write another name, such as `handle = lock`",
            function.name
        );
        errors.at(handle.span(), wanted);
    }
}

/// What `with` computes stands in a key.
pub(crate) fn used<'a>(
    with: &[(Ident, TokenStream)],
    patterns: impl Iterator<Item = &'a KeyPattern>,
    errors: &mut Errors,
) {
    let roots: Vec<&str> = patterns
        .flat_map(KeyPattern::placeholders)
        .filter_map(|placeholder| Some(placeholder.path.first()?.as_str()))
        .collect();
    for (name, _) in with {
        if !roots.iter().any(|root| name == root) {
            errors.at(
                name.span(),
                format_args!("`{name}` stands in no key: write `<{name}>` where it belongs"),
            );
        }
    }
}

/// The body runs on the connection that holds the lock, unless it takes another under the same name.
pub(crate) fn same_connection(connection: &Connection, function: &Function, errors: &mut Errors) {
    let name = match connection {
        Connection::Place { root, fields, .. } if fields.is_empty() => root.to_string(),
        Connection::Place { .. } | Connection::Pool(_) => return,
        Connection::Expression(_) => "conn".to_owned(),
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
            format!(
                "remove this line, or write `conn = {from}` into the attribute in place of the parameter"
            )
        }
        Connection::Expression(_) | Connection::Pool(_) => {
            "remove this line, the attribute has taken the connection".to_owned()
        }
    };
    errors.at(
        binding.span,
        format_args!(
            "this `{name}` does not hold the lock, the one from before the body does: {instead}"
        ),
    );
}

/// With `conn = self.conn` the body has `self` under another name, and the text of a format string is not looked into.
pub(crate) fn no_self_in_text(connection: &Connection, function: &Function, errors: &mut Errors) {
    if let Connection::Place { root, .. } = connection
        && root == "self"
        && let Some(literal) = text_with_self(function.body.stream())
    {
        let wanted =
            "the text can't name `self` here: write `\"{}\", self` in place of `\"{self}\"`";
        errors.at(literal.span(), wanted);
    }
}

/// A literal that names `self`, among the arguments of a macro: elsewhere it is a text like any other.
fn text_with_self(tokens: TokenStream) -> Option<TokenTree> {
    let mut after_bang = false;
    for token in tokens {
        let found = match &token {
            TokenTree::Group(group) if after_bang => group.stream().into_iter().find(names_self),
            _ => None,
        };
        let inside = match &token {
            TokenTree::Group(group) => text_with_self(group.stream()),
            _ => None,
        };
        if let Some(literal) = found.or(inside) {
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
