//! Single values among the arguments: texts, numbers and names.

use crate::errors::Errors;
use crate::tokens::{first_span, is_punct, is_word, spelled, split_at_commas, ungrouped};
use advisory_pattern::{MOST_PERMITS, Permits};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use std::fmt::Display;
use syn::parse::Parse;
use syn::{Lit, LitInt, LitStr};

pub(crate) fn string(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitStr> {
    let word: Option<Ident> = syn::parse2(value.clone()).ok();
    let wanted = match word {
        Some(word) => format!("write `{name} = \"{word}\"`"),
        None => format!("`{name}` takes a string literal: write `{name} = \"…\"`"),
    };
    read(value, wanted, errors)
}

/// The whole value as a `T`, or the message at its start.
pub(crate) fn read<T: Parse>(
    value: TokenStream,
    wanted: impl Display,
    errors: &mut Errors,
) -> Option<T> {
    let span = first_span(&value);
    syn::parse2(value).map_err(|_| errors.at(span, wanted)).ok()
}

pub(crate) fn number(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitInt> {
    let span = first_span(&value);
    let digits = syn::parse2::<LitStr>(value.clone()).ok();
    let digits: Option<u32> = digits.and_then(|digits| digits.value().trim().parse().ok());
    let literal: Option<LitInt> = syn::parse2(value).ok();
    let literal = literal.filter(|literal| {
        literal
            .base10_parse::<usize>()
            .is_ok_and(|number| number > 0)
    });
    if literal.is_none() {
        let wanted = digits.filter(|digits| *digits > 0).map_or_else(
            || format!(", such as `{name} = 128`"),
            |digits| format!(": write `{name} = {digits}`"),
        );
        errors.at(
            span,
            format_args!("`{name}` must be a number, at least 1{wanted}"),
        );
    }
    literal
}

/// `permits = 3`, or an expression: as the record has it, and as it is written.
pub(crate) fn permits(
    value: TokenStream,
    name: &Ident,
    errors: &mut Errors,
) -> Option<(Permits, TokenStream)> {
    let number = |digits: &str| {
        let number = digits.trim().parse().ok();
        number.filter(|number| (1..=MOST_PERMITS).contains(number))
    };
    let wanted = match syn::parse2(value.clone()) {
        Ok(Lit::Int(literal)) => match number(literal.base10_digits()) {
            Some(permits) => return Some((Permits::Number(permits), value)),
            None => None,
        },
        Ok(Lit::Str(quoted)) => number(&quoted.value()).map(|permits| permits.to_string()),
        // `-1` is a literal too.
        Ok(_) => None,
        Err(_) => return Some((Permits::Expression(spelled(&value)), value)),
    };
    let wanted = match wanted {
        Some(permits) => format!(": write `{name} = {permits}`"),
        None => format!(", such as `{name} = 3`, or an expression of an integer type"),
    };
    errors.refuse(
        first_span(&value),
        format_args!("`{name}` must be a number from 1 to {MOST_PERMITS}{wanted}"),
    )
}

/// `at = (tenants::id, tenant_id)`.
pub(crate) struct AtArg {
    pub(crate) column: TokenStream,
    pub(crate) value: TokenStream,
}

pub(crate) fn at(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<AtArg> {
    let span = first_span(&value);
    let mut tokens = value.into_iter();
    if let (Some(TokenTree::Group(pair)), None) = (tokens.next().map(ungrouped), tokens.next())
        && pair.delimiter() == Delimiter::Parenthesis
        && let [column, value] = split_at_commas(pair.stream()).as_slice()
    {
        let (column, value) = (column.clone(), value.clone());
        return Some(AtArg { column, value });
    }
    let wanted = format_args!(
        "`{name}` takes the column by which a table is distributed, and its value: write `{name} = (tenants::id, tenant_id)`"
    );
    errors.refuse(span, wanted)
}

pub(crate) fn reason(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitStr> {
    let reason = string(value, name, errors)?;
    if reason.value().trim().is_empty() {
        errors.at(
            reason.span(),
            format_args!("`{name}` needs a reason: write `{name} = \"keys of the old service\"`"),
        );
    }
    Some(reason)
}

pub(crate) fn tables(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Vec<String>> {
    let written = string(value, name, errors)?;
    let tables: Vec<String> = written
        .value()
        .split(',')
        .map(|table| table.trim().to_owned())
        .collect();
    if tables
        .iter()
        .any(|table| table.is_empty() || table.contains(char::is_whitespace))
    {
        errors.at(
            written.span(),
            format_args!("`{name}` takes the names of tables: write `{name} = \"bookings\"`, or `{name} = \"bookings, shop.blocks\"`"),
        );
    }
    Some(tables)
}

pub(crate) fn ident(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Ident> {
    let wanted = quoted_ident(&value).map_or_else(|| "lock".to_owned(), |word| word.to_string());
    let wanted = format!("`{name}` takes a variable name: write `{name} = {wanted}`");
    read(value, wanted, errors)
}

/// `on_held = …` or `on_done = …`: an expression, which no text can be.
pub(crate) fn returned(
    value: TokenStream,
    name: &Ident,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let is_word = |word: &Lit| matches!(word, Lit::Str(_) | Lit::Bool(_));
    if syn::parse2::<Lit>(value.clone()).is_ok_and(|literal| is_word(&literal)) {
        let wanted = format_args!(
            "`{name}` takes the value to return: write `{name} = Ok(…)` or `{name} = Err(…)`"
        );
        return errors.refuse(first_span(&value), wanted);
    }
    Some(value)
}

pub(crate) fn label(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitStr> {
    let label = string(value, name, errors)?;
    if label.value().trim().is_empty() {
        return errors.refuse(
            label.span(),
            format_args!("`{name}` is empty: write `{name} = \"booking-slot\"`, or leave it out"),
        );
    }
    Some(label)
}

/// `err = |error| …`, or a function's path.
pub(crate) fn conversion(
    value: TokenStream,
    name: &Ident,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let mut tokens = value.clone().into_iter();
    let is_closure = tokens.next().is_some_and(|first| {
        is_punct(&first, '|') || is_word(&first, "move") || is_word(&first, "async")
    });
    if is_closure || syn::parse2::<syn::Path>(value.clone()).is_ok() {
        return Some(value);
    }
    let wanted = format_args!(
        "`{name}` takes a function that converts the lock's error: write `{name} = |error| {}`",
        spelled(&value)
    );
    errors.refuse(first_span(&value), wanted)
}

/// `allow_overlap("other-name", "reason")`.
pub(crate) fn overlap(
    group: Option<&TokenTree>,
    name: &Ident,
    errors: &mut Errors,
) -> Option<(LitStr, LitStr)> {
    let parts = match group {
        Some(TokenTree::Group(group)) => split_at_commas(group.stream()),
        Some(_) | None => Vec::new(),
    };
    let literal = |part: &TokenStream| syn::parse2::<LitStr>(part.clone()).ok();
    if let [other, why] = parts.as_slice()
        && let (Some(other), Some(why)) = (literal(other), literal(why))
        && !why.value().trim().is_empty()
    {
        return Some((other, why));
    }
    let wanted = "write `allow_overlap(\"the other lock's name\", \"the reason\")`";
    errors.refuse(name.span(), wanted)
}

/// The identifier in quotes, where one without was expected.
pub(crate) fn quoted_ident(value: &TokenStream) -> Option<Ident> {
    let literal: LitStr = syn::parse2(value.clone()).ok()?;
    syn::parse_str(&literal.value()).ok()
}

/// "`a`, `b` or `c`"
pub(crate) fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, [])) => format!("`{last}`"),
        Some((last, rest)) => format!("`{}` or `{last}`", rest.join("`, `")),
        None => String::new(),
    }
}
