//! A warning for a body that does not use the connection that holds the lock.
//!
//! rustc does not warn, because the expansion uses the connection, and a macro has no warnings. So the expansion calls a deprecated
//! function at the place where the user named the connection.

use crate::args::choice::Scope;
use crate::site::Site;
use crate::site::connection::Connection;
use crate::tokens::first_span;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote_spanned;

/// A statement that warns, if the connection is unused. A session-level lock also protects work without a connection, and a lease has
/// no connection. A parameter whose name starts with `_` is unused on purpose.
pub(crate) fn warning(site: &Site) -> TokenStream {
    let (name, span) = connection_name(site);
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
    !mentions(site.function.body.stream(), &connection_name(site).0)
}

/// The body's name for its connection, or for the value that contains it, and its span.
fn connection_name(site: &Site) -> (String, Span) {
    match &site.connection {
        Connection::Place { root, .. } => (root.to_string(), root.span()),
        Connection::Expression(expression) | Connection::Pool(expression) => {
            ("conn".to_owned(), first_span(expression))
        }
    }
}

/// Whether tokens contain the name, also in a literal, which can be a format string.
fn mentions(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(group.stream(), name),
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
