//! The connection in the expansion: what the guard borrows, and how the body reaches it.

use super::parts::Parts;
use super::rename_self::rename_self;
use crate::function::params::Receiver;
use crate::function::word;
use crate::site::Site;
use crate::site::connection::Connection;
use crate::site::lock::LockSite;
use crate::tokens::{first_span, hygienic, is_word, located_at};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};

pub(crate) struct BodyConnection {
    /// A statement that borrows the pool, if there is one.
    pub(crate) pool: Option<TokenStream>,
    pub(crate) take: TokenStream,
    /// The value of the local `taken` before the lock, for a connection from an expression or a
    /// pool.
    pub(crate) taken: TokenStream,
    /// The value that the guard borrows.
    pub(crate) owner: TokenStream,
    /// The path from the owner to the connection.
    pub(crate) place: TokenStream,
    pub(crate) name: Ident,
    pub(crate) body: TokenStream,
}

pub(crate) fn body_connection(lock: &LockSite, parts: &Parts) -> BodyConnection {
    let site = &lock.site;
    let here = Span::mixed_site();
    let krate = site.args.runtime();
    // The compiler reports here that a value is not a connection.
    let place = |at: Span| {
        let krate = located_at(krate.clone(), at);
        if site.function.is_blocking() {
            quote_spanned!(at=> #krate::__private::blocking::pg)
        } else {
            quote_spanned!(at=> #krate::__private::pg)
        }
    };
    // A blocking connection, or a reference to one. Only the compiler knows which; an async
    // connection is both.
    let inside = |value: &TokenStream, at: Span| {
        let private = quote_spanned!(at=> #krate::__private);
        quote_spanned!(at=> #private::blocking::ConnectionIn::new(#value))
    };
    let body = site.function.body.stream();
    match &lock.connection {
        Connection::Pool(expression) | Connection::Expression(expression) => {
            let at = first_span(expression).resolved_at(here);
            let borrowed = quote_spanned!(at=> &mut taken);
            let (pool, taken, owner) = if matches!(lock.connection, Connection::Pool(_)) {
                // A temporary value lives as long as the connection that can borrow it.
                let pool = quote_spanned!(at=> let pool = &(#expression););
                (Some(pool), check_out(site, parts, at), borrowed)
            } else if site.function.is_blocking() {
                let owner = quote_spanned!(at=> taken.conn());
                (None, inside(expression, at), owner)
            } else {
                (None, expression.clone(), borrowed)
            };
            BodyConnection {
                take: hygienic!(#pool let mut taken = #taken;),
                pool,
                taken,
                owner,
                place: place(at),
                name: connection_name(site),
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
            let at = root.span().resolved_at(here);
            let is_known = !site.function.is_blocking()
                || !fields.is_empty()
                || is_reference_to(site, root, "PgConnection");
            let (value, borrowed) = match by {
                Receiver::Value => (Some(root), hygienic!(&mut owned)),
                Receiver::MutValue => (None, hygienic!(&mut #root)),
                Receiver::Mutable | Receiver::Shared => (None, hygienic!(&mut *#root)),
            };
            let (take, owner) = if is_known {
                let take = value.map(|value| hygienic!(let mut owned = #value;));
                (take.unwrap_or_default(), borrowed)
            } else {
                let value = value.map_or(borrowed, ToTokens::to_token_stream);
                let owned = inside(&value, at);
                (
                    hygienic!(let mut owned = #owned;),
                    quote_spanned!(at=> owned.conn()),
                )
            };
            let place = if fields.is_empty() {
                place(at)
            } else if site.function.is_blocking() {
                quote_spanned!(at=> |place| #krate::__private::blocking::field(&mut place #fields))
            } else {
                let place = place(at);
                quote_spanned!(at=> |place| #place(&mut place #fields))
            };
            let body = if is_self {
                rename_self(body, &name)
            } else {
                body
            };
            BodyConnection {
                pool: None,
                take,
                taken: TokenStream::new(),
                owner,
                place,
                name,
                body,
            }
        }
    }
}

/// An expression: a connection of the local `pool`. Without one the function returns, even where it
/// has an `on_held`.
fn check_out(site: &Site, parts: &Parts, at: Span) -> TokenStream {
    let Parts {
        private, converted, ..
    } = parts;
    // The compiler reports here that a value is not a pool, and only once if all tokens have one
    // span.
    let located = if site.args.has("crate") {
        private.clone()
    } else {
        quote_spanned!(at=> ::advisory_runtime::__private)
    };
    let connection = if site.function.is_blocking() {
        quote_spanned!(at=> #located::blocking::connection(pool))
    } else if site.args.has("poll") {
        quote_spanned!(at=> #located::connection(pool).await)
    } else {
        quote_spanned!(at=> #located::connection_for(pool, &request).await)
    };
    hygienic!(
        match #connection {
            #private::Ok(taken) => taken,
            #private::Err(error) => return #converted,
        }
    )
}

/// The name `conn`, at the argument and with the hygiene of the body, which can come from another
/// macro.
pub(crate) fn connection_name(site: &Site) -> Ident {
    let used = word(site.function.body.stream(), "conn");
    let used = used.map_or_else(Span::call_site, |used| used.span());
    let argument = site.args.span("pool").or_else(|| site.args.span("conn"));
    Ident::new("conn", argument.unwrap_or(used).resolved_at(used))
}

/// Returns whether a parameter is written as a mutable reference to a type of this name.
pub(crate) fn is_reference_to(site: &Site, param: &Ident, name: &str) -> bool {
    let mut params = site.function.params.iter();
    let param = params.find(|known| known.is_name && known.names.contains(param));
    let param = param.filter(|param| param.is_mutable_reference());
    let last = param.and_then(|param| param.ty.clone().into_iter().last());
    last.is_some_and(|last| is_word(&last, name))
}
