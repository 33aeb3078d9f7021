//! One argument `name = value`, whichever macro it belongs to.

use super::value::listed;
use crate::errors::Errors;
use crate::tokens::{is_punct, span_of};
use proc_macro2::{Ident, TokenStream, TokenTree};

/// The name of an argument, one of `known`.
pub(crate) fn name_of(
    first: Option<TokenTree>,
    known: &[&str],
    errors: &mut Errors,
) -> Option<Ident> {
    let Some(TokenTree::Ident(name)) = first else {
        errors.at(
            span_of(first.as_ref()),
            format_args!("expected an argument: {}", listed(known)),
        );
        return None;
    };
    let word = name.to_string();
    if known.contains(&word.as_str()) {
        return Some(name);
    }
    let hint = advisory_pattern::closest(&word, known.iter().copied()).map_or_else(
        || format!("expected {}", listed(known)),
        |close| format!("did you mean `{close}`?"),
    );
    errors.at(
        name.span(),
        format_args!("unknown argument `{word}`: {hint}"),
    );
    None
}

/// The value of an argument, after its name and `=`.
pub(crate) fn value_of(
    name: &Ident,
    equals: Option<&TokenTree>,
    value: TokenStream,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let has_equals = equals.is_some_and(|equals| is_punct(equals, '='));
    if !has_equals || value.is_empty() {
        errors.at(name.span(), format_args!("expected `{name} = …`"));
        return None;
    }
    Some(value)
}

/// Sets an argument. Only this function reports that one is given twice.
pub(crate) fn set<T>(slot: &mut Option<T>, name: &Ident, value: Option<T>, errors: &mut Errors) {
    if slot.is_some() {
        let message = match name.to_string().as_str() {
            "key" | "keys" => {
                "the key is given twice: write `key = …` for one, `keys = […]` for several"
                    .to_owned()
            }
            name => format!("`{name}` is given twice"),
        };
        errors.at(name.span(), message);
    } else {
        *slot = value;
    }
}

/// Says that an argument is listed as known, and that no code reads it.
pub(crate) fn not_implemented(name: &Ident, errors: &mut Errors) {
    errors.at(name.span(), format_args!("`{name}` is not implemented"));
}
