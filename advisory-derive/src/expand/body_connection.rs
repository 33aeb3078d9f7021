//! The connection in the expansion: what the guard borrows, and how the body reaches it.

use super::rename_self::rename_self;
use crate::function::params::Receiver;
use crate::site::Site;
use crate::site::connection::Connection;
use crate::tokens::first_span;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;

/// How the body reaches its connection while the guard holds it.
pub(crate) struct BodyConnection {
    /// Statements before the lock.
    pub(crate) take: TokenStream,
    /// What the guard borrows.
    pub(crate) owner: TokenStream,
    /// The way from the owner to the connection.
    pub(crate) place: TokenStream,
    /// What the body calls it.
    pub(crate) name: Ident,
    pub(crate) body: TokenStream,
}

pub(crate) fn body_connection(site: &Site) -> BodyConnection {
    let here = Span::mixed_site();
    let krate = site.args.runtime();
    // The compiler reports here that a value is not a connection.
    let place = |at: Span| {
        let krate = krate.clone().into_iter().map(|mut token| {
            token.set_span(token.span().located_at(at));
            token
        });
        let krate: TokenStream = krate.collect();
        if site.function.is_blocking() {
            quote_spanned!(at=> #krate::__private::blocking::pg)
        } else {
            quote_spanned!(at=> #krate::__private::pg)
        }
    };
    let body = site.function.body.stream();
    match &site.connection {
        Connection::Expression(expression) | Connection::Pool(expression) => {
            let name = Ident::new("conn", Span::call_site());
            let at = first_span(expression).resolved_at(here);
            BodyConnection {
                take: quote_spanned!(here=> let mut taken = #expression;),
                owner: quote_spanned!(at=> &mut taken),
                place: place(at),
                name,
                body,
            }
        }
        Connection::Place { root, fields, by } => {
            let is_self = root == "self";
            let name = if is_self {
                Ident::new("this", here)
            } else {
                root.clone()
            };
            let (take, owner) = match by {
                Receiver::Value => (
                    quote_spanned!(here=> let mut owned = #root;),
                    quote_spanned!(here=> &mut owned),
                ),
                Receiver::MutValue => (TokenStream::new(), quote_spanned!(here=> &mut #root)),
                Receiver::Mutable | Receiver::Shared => {
                    (TokenStream::new(), quote_spanned!(here=> &mut *#root))
                }
            };
            let at = root.span().resolved_at(here);
            let place = place(at);
            let place = if fields.is_empty() {
                place
            } else {
                quote_spanned!(at=> |place| #place(&mut place #fields))
            };
            let body = if is_self {
                rename_self(body, &name)
            } else {
                body
            };
            BodyConnection {
                take,
                owner,
                place,
                name,
                body,
            }
        }
    }
}
