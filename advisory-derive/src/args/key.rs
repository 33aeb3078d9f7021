//! The values of `key`, `keys` and `with`.

use crate::errors::Errors;
use crate::tokens::{first_span, span_of, spelled, split_at_commas, ungrouped};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::LitStr;

/// One key as written.
pub(crate) enum KeyArg {
    /// A string literal: a key pattern.
    Pattern(LitStr),
    /// Anything else: an expression that is a `LockKey`.
    Expression(TokenStream),
    /// An expression that gives any number of `LockKey`s.
    Each(TokenStream),
}

pub(crate) fn key(value: TokenStream, errors: &mut Errors) -> Option<KeyArg> {
    let mut tokens = value.clone().into_iter();
    let (first, second) = (tokens.next(), tokens.next());
    if let (Some(TokenTree::Group(list)), None) = (&first, &second)
        && (list.delimiter() == Delimiter::Bracket
            || list.delimiter() == Delimiter::Parenthesis && has_text(list))
    {
        let list = spelled(&list.stream());
        errors.at(
            first_span(&value),
            format_args!("several keys go into `keys`: write `keys = [{list}]`"),
        );
        return None;
    }
    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(bang))) = (&first, &second)
        && bang.as_char() == '!'
    {
        errors.at(
            name.span(),
            "a macro cannot be expanded here: write the key pattern as one string literal",
        );
        return None;
    }
    Some(syn::parse2(value.clone()).map_or(KeyArg::Expression(value), KeyArg::Pattern))
}

pub(crate) fn keys(value: TokenStream, errors: &mut Errors) -> Option<Vec<KeyArg>> {
    let mut tokens = value.clone().into_iter();
    let (list, more) = (tokens.next().map(ungrouped), tokens.next());
    match (list, more) {
        (Some(TokenTree::Group(list)), None) if list.delimiter() == Delimiter::Bracket => {
            let keys: Vec<_> = split_at_commas(list.stream())
                .into_iter()
                .filter_map(|item| key(item, errors))
                .collect();
            if keys.is_empty() {
                errors.at(
                    list.span(),
                    "`keys` is empty: write `keys = [\"account:<from>\", \"account:<to>\"]`",
                );
            }
            Some(keys)
        }
        (Some(TokenTree::Literal(list)), None) => {
            let wanted = format_args!(
                "`keys` is a list: write `keys = [{list}, …]`, or for one key `key = {list}`"
            );
            errors.at(list.span(), wanted);
            None
        }
        _ => Some(vec![KeyArg::Each(value)]),
    }
}

/// Whether a key pattern is among the elements.
fn has_text(list: &Group) -> bool {
    let mut elements = split_at_commas(list.stream()).into_iter();
    elements.any(|element| syn::parse2::<LitStr>(element).is_ok())
}

/// `with(name = expression, …)`.
pub(crate) fn with(
    group: Option<TokenTree>,
    name: &Ident,
    errors: &mut Errors,
) -> Option<Vec<(Ident, TokenStream)>> {
    const WANTED: &str = "write `with(name = expression)` and `<name>` in the key";
    let Some(TokenTree::Group(group)) = group else {
        errors.at(name.span(), WANTED);
        return None;
    };
    let mut values = Some(Vec::new());
    for value in split_at_commas(group.stream()) {
        let mut tokens = value.into_iter();
        let (name, equals) = (tokens.next(), tokens.next());
        let expression: TokenStream = tokens.collect();
        match (name, equals) {
            (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(punct)))
                if punct.as_char() == '=' && !expression.is_empty() =>
            {
                if let Some(values) = &mut values {
                    values.push((name, expression));
                }
            }
            (name, _) => {
                errors.at(span_of(name.as_ref()), WANTED);
                values = None;
            }
        }
    }
    values
}
