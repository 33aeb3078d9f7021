//! The captures of an async body: which parameters, by move or by reference.
//!
//! The body is an `async` block, so that `?` and `return` end the body alone. The block captures a
//! parameter that is only read by shared reference, and keeps that reference while it waits: a
//! parameter that is not `Sync` would cost the future its `Send`. A block that moves them would
//! drop them before the commit. So each is captured by mutable reference, which is `Send` if the
//! parameter is.

use super::body_connection::{connection_name, is_reference_to};
use crate::function::params::{Param, Receiver};
use crate::function::{Form, mentions};
use crate::site::Site;
use crate::site::connection::Connection;
use crate::site::keys::SiteKey;
use crate::tokens::{hygienic, is_punct};
use advisory_pattern::Shape;
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};

#[derive(Default)]
pub(crate) struct Captures {
    /// Statements before everything else, which let the parameters be borrowed mutably.
    pub(crate) rebind: TokenStream,
    /// True if `self` must be declared `mut`.
    pub(crate) with_mut_self: bool,
    /// A statement that never runs. It only has the body capture by mutable reference.
    pub(crate) borrow: TokenStream,
}

impl Captures {
    /// The captures of the function's body. In the function of `#[async_trait]` it moves the
    /// parameters itself.
    pub(crate) fn new(site: &Site, connection: Option<&Connection>) -> Self {
        let body = site.function.body.stream();
        let (mut captures, mut borrows) = (Self::default(), Vec::new());
        let mut conditional = TokenStream::new();
        if site.function.form != Form::Async {
            return captures;
        }
        borrows
            .extend(connection.and_then(|connection| borrowed_connection(site, connection, &body)));
        for param in &site.function.params {
            if is_sync(param) {
                continue;
            }
            let conditions = &param.conditions;
            for name in &param.names {
                if !is_used(&body, name) || is_in_use(site, connection, name) {
                    continue;
                }
                let is_reborrowed = param.is_name && param.is_mutable_reference();
                if !is_reborrowed && !param.is_mut(name) {
                    let rebind = hygienic!(#conditions let mut #name = #name;);
                    captures.rebind.extend(rebind);
                }
                let borrow = if is_reborrowed {
                    hygienic!(&mut *#name)
                } else {
                    hygienic!(&mut #name)
                };
                if conditions.is_empty() {
                    borrows.push(borrow);
                } else {
                    conditional.extend(hygienic!(#conditions { _ = #borrow; }));
                }
            }
        }
        if let Some(this) = used_self(body).filter(|this| !is_in_use(site, connection, this)) {
            match site.function.receiver {
                Some(Receiver::Mutable) => borrows.push(hygienic!(&mut *#this)),
                Some(by @ (Receiver::Value | Receiver::MutValue)) => {
                    captures.with_mut_self = by == Receiver::Value;
                    borrows.push(hygienic!(&mut #this));
                }
                Some(Receiver::Shared) | None => {}
            }
        }
        captures.borrow = match borrows.as_slice() {
            [] => TokenStream::new(),
            [only] => hygienic!(_ = #only;),
            several => hygienic!(_ = (#(#several),*);),
        };
        captures.borrow.extend(conditional);
        captures
    }
}

fn borrowed_connection(
    site: &Site,
    connection: &Connection,
    body: &TokenStream,
) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let name = match connection {
        Connection::Place { root, fields, .. } => {
            if fields.is_empty() && is_reference_to(site, root, "AsyncPgConnection") {
                return None;
            }
            root.clone()
        }
        Connection::Expression(_) | Connection::Pool(_) => connection_name(site),
    };
    if !is_used(body, &name) {
        return None;
    }
    let name = if name == "self" {
        Ident::new("this", here)
    } else {
        name
    };
    Some(hygienic!(&mut *#name))
}

/// Returns whether a shared reference to the parameter is `Send` if the parameter is: it is a
/// shared reference itself, or a plain value.
fn is_sync(param: &Param) -> bool {
    if param.is_reference() {
        return param.is_name && !param.is_mutable_reference();
    }
    let last = param.ty.clone().into_iter().last();
    let is_plain = |last| matches!(last, TokenTree::Ident(word) if Shape::of_type(&word.to_string()).is_some());
    param.is_name && last.is_some_and(is_plain)
}

/// Returns whether the lock uses the parameter while the body runs. The body can only share it
/// then.
fn is_in_use(site: &Site, connection: Option<&Connection>, name: &Ident) -> bool {
    let by_connection = match connection {
        Some(Connection::Place { root, .. }) => root == name,
        Some(Connection::Expression(source) | Connection::Pool(source)) => {
            name == "conn" || is_used(source, name)
        }
        None => false,
    };
    let is_in_key = |key: &SiteKey| match key {
        SiteKey::Pattern(_) => false,
        SiteKey::Expression(key) | SiteKey::Each(key) => is_used(key, name),
    };
    let by_witness = || {
        let mut with = site.keys.with.iter();
        site.keeps_locks()
            && (site.keys.list.iter().any(is_in_key) || with.any(|(_, value)| is_used(value, name)))
    };
    // The body may move another field of it.
    let by_err = || {
        let err = site.args.err.as_ref();
        err.is_some_and(|err| uses_field(err, name))
    };
    by_connection || by_witness() || by_err()
}

/// Returns whether the tokens use the name, also in a format string.
fn is_used(tokens: &TokenStream, name: &Ident) -> bool {
    let name = name.to_string();
    mentions(tokens, &name) || is_formatted(tokens.clone(), &format!("{{{name}"))
}

fn is_formatted(tokens: TokenStream, start: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => is_formatted(group.stream(), start),
        TokenTree::Literal(literal) => literal.to_string().contains(start),
        TokenTree::Ident(_) | TokenTree::Punct(_) => false,
    })
}

/// The `self` that the body uses, with its hygiene.
fn used_self(body: TokenStream) -> Option<Ident> {
    body.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => used_self(group.stream()),
        TokenTree::Ident(word) if word == "self" => Some(word),
        TokenTree::Literal(literal) if literal.to_string().contains("{self") => {
            Some(Ident::new("self", literal.span()))
        }
        _ => None,
    })
}

/// Returns whether the tokens use a field of the name, and not only a method.
fn uses_field(tokens: &TokenStream, name: &Ident) -> bool {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is_call = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
    let is_field = |(index, token): (usize, &TokenTree)| match token {
        TokenTree::Group(group) => uses_field(&group.stream(), name),
        TokenTree::Ident(word) if word == name => {
            tokens.get(index + 1).is_some_and(|dot| is_punct(dot, '.'))
                && !is_call(tokens.get(index + 3))
        }
        _ => false,
    };
    tokens.iter().enumerate().any(is_field)
}
