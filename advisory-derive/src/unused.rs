//! A warning for a body that leaves the connection that holds the lock alone.
//!
//! A macro cannot warn by itself, and rustc does not: the expansion uses the connection. What it can do is to call something
//! deprecated, where the user named the connection.

use crate::choice::Scope;
use crate::connection::Connection;
use crate::site::Site;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote_spanned;

/// A statement that warns, if there is something to warn of. A session-level lock protects what needs no connection, too, and a
/// lease has none; a parameter whose name starts with `_` is meant to be unused.
pub(crate) fn warning(site: &Site) -> TokenStream {
    let (name, span) = named(site);
    if site.args.scope() != Scope::Xact || name.starts_with('_') || !is_unused(site) {
        return TokenStream::new();
    }
    let here = Span::mixed_site();
    let whole = match &site.connection {
        Connection::Place { fields, .. } => format!("{name}{fields}"),
        Connection::Expression(_) | Connection::Pool(_) => name,
    };
    let note = format!(
        "the body never uses `{whole}`, the connection that holds the lock: a statement on another connection is not protected \
         by its transaction; where that is meant write `#[allow(deprecated)]`"
    );
    let warning = Ident::new("unused_connection", span);
    quote_spanned!(here=>
        {
            #[deprecated(note = #note)]
            fn #warning() {}
            #warning();
        }
    )
}

/// Whether the body never mentions its connection.
pub(crate) fn is_unused(site: &Site) -> bool {
    !mentioned(site.function.body.stream(), &named(site).0)
}

/// What the body calls its connection, or what that is part of, and where the user said so.
fn named(site: &Site) -> (String, Span) {
    match &site.connection {
        Connection::Place { root, .. } => (root.to_string(), root.span()),
        Connection::Expression(expression) | Connection::Pool(expression) => {
            let first = expression.clone().into_iter().next();
            let span = first.map_or_else(Span::call_site, |token| token.span());
            ("conn".to_owned(), span)
        }
    }
}

/// Whether tokens name something, also in a text, which may be a format string.
fn mentioned(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => mentioned(group.stream(), name),
        TokenTree::Ident(word) => word == name,
        TokenTree::Literal(literal) => {
            let is_part = |character: char| character.is_alphanumeric() || character == '_';
            let text = literal.to_string();
            text.split(|character| !is_part(character))
                .any(|word| word == name)
        }
        TokenTree::Punct(_) => false,
    })
}
