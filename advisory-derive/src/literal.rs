//! Single values among the arguments: texts, numbers and names.

use crate::errors::Errors;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::{LitInt, LitStr};

pub(crate) fn string(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitStr> {
    let first = value.clone().into_iter().next();
    let written = value.to_string();
    let wanted = match &first {
        Some(TokenTree::Ident(word)) if *word == written => format!("write `{name} = \"{word}\"`"),
        _ => format!("`{name}` is a string literal: write `{name} = \"…\"`"),
    };
    syn::parse2(value)
        .map_err(|_| errors.at(span_of(first.as_ref()), wanted))
        .ok()
}

pub(crate) fn number(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitInt> {
    let span = span_of(value.clone().into_iter().next().as_ref());
    let literal: Option<LitInt> = syn::parse2(value).ok();
    let literal = literal.filter(|literal| {
        literal
            .base10_parse::<usize>()
            .is_ok_and(|number| number > 0)
    });
    if literal.is_none() {
        errors.at(
            span,
            format_args!("`{name}` is a number of at least 1: write `{name} = 128`"),
        );
    }
    literal
}

pub(crate) fn reason(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitStr> {
    let reason = string(value, name, errors)?;
    if reason.value().trim().is_empty() {
        errors.at(
            reason.span(),
            format_args!("`{name}` says why: write `{name} = \"keys of the old service\"`"),
        );
    }
    Some(reason)
}

/// A name that the body gets to see.
pub(crate) fn ident(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Ident> {
    let first = value.clone().into_iter().next();
    let quoted = syn::parse2::<LitStr>(value.clone()).ok();
    let quoted = quoted.and_then(|literal| syn::parse_str::<Ident>(&literal.value()).ok());
    let ident = syn::parse2(value).ok();
    if ident.is_none() {
        let wanted = quoted.map_or_else(|| "lock".to_owned(), |word| word.to_string());
        errors.at(
            span_of(first.as_ref()),
            format_args!("`{name}` is a name for the body: write `{name} = {wanted}`"),
        );
    }
    ident
}

pub(crate) fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, [])) => format!("`{last}`"),
        Some((last, rest)) => format!("`{}` or `{last}`", rest.join("`, `")),
        None => String::new(),
    }
}

pub(crate) fn span_of(token: Option<&TokenTree>) -> Span {
    token.map_or_else(Span::call_site, TokenTree::span)
}
