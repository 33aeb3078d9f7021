//! What is wrong with a site whose parts are each well-formed.

use crate::connection::Connection;
use crate::errors::Errors;
use crate::function::Function;
use crate::key::KeyPattern;
use crate::locked::Locked;
use proc_macro2::{Ident, TokenStream, TokenTree};

/// Keys that each parse, under the names that the function gives them.
pub(crate) fn keys(locked: &Locked, function: &Function, errors: &mut Errors) {
    let names = locked.names(function);
    for pattern in locked.patterns() {
        pattern.check(&names, locked.may_be_ambiguous, errors);
    }
    used(&locked.with, locked.patterns(), errors);
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
        Connection::Place { .. } => return,
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
        Connection::Expression(_) => {
            "remove this line, the attribute has taken the connection".to_owned()
        }
        Connection::Place { .. } => {
            format!(
                "remove this line, or write `conn = {from}` into the attribute in place of the parameter"
            )
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

fn text_with_self(tokens: TokenStream) -> Option<TokenTree> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => text_with_self(group.stream()),
        TokenTree::Literal(literal) => {
            let text = literal.to_string().replace("{{", "");
            let names_self = text.contains("{self}") || text.contains("{self:");
            names_self.then_some(TokenTree::Literal(literal))
        }
        _ => None,
    })
}
