//! What is written between the parentheses of the attribute.

use crate::errors::Errors;
use proc_macro2::{Delimiter, Ident, Spacing, Span, TokenStream, TokenTree};
use syn::{LitStr, parse::Parser};

/// The arguments as written. `None` is "not given".
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Option<LitStr>,
    /// Whether there is one at all, right or wrong.
    pub(crate) has_key: bool,
    pub(crate) scope: Option<LitStr>,
    pub(crate) conn: Option<TokenStream>,
    pub(crate) krate: Option<TokenStream>,
}

const NAMES: [&str; 4] = ["key", "scope", "conn", "crate"];

pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Args {
    let mut args = Args::default();
    for argument in split_at_commas(tokens) {
        let mut tokens = argument.into_iter();
        let (name, equals) = (tokens.next(), tokens.next());
        let Some(TokenTree::Ident(name)) = name else {
            errors.at(
                span_of(name.as_ref()),
                format_args!("expected an argument: {}", listed()),
            );
            continue;
        };
        if !matches!(&equals, Some(TokenTree::Punct(punct)) if punct.as_char() == '=') {
            errors.at(name.span(), format_args!("expected `{name} = …`"));
            continue;
        }
        let value: TokenStream = tokens.collect();
        match name.to_string().as_str() {
            "key" => {
                args.has_key = true;
                set(&mut args.key, &name, string(value, &name, errors), errors);
            }
            "scope" => set(&mut args.scope, &name, string(value, &name, errors), errors),
            "conn" => set(
                &mut args.conn,
                &name,
                expression(value, &name, errors),
                errors,
            ),
            "crate" => set(
                &mut args.krate,
                &name,
                expression(value, &name, errors),
                errors,
            ),
            unknown => {
                let hint = advisory_pattern::closest(unknown, NAMES).map_or_else(
                    || format!("expected {}", listed()),
                    |close| format!("did you mean `{close}`?"),
                );
                errors.at(
                    name.span(),
                    format_args!("unknown argument `{unknown}`: {hint}"),
                );
            }
        }
    }
    args
}

/// The only place that can say "given twice".
fn set<T>(slot: &mut Option<T>, name: &Ident, value: Option<T>, errors: &mut Errors) {
    if slot.is_some() {
        errors.at(name.span(), format_args!("`{name}` is given twice"));
    } else {
        *slot = value;
    }
}

fn string(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitStr> {
    let first = value.clone().into_iter().next();
    if first.is_none() {
        errors.at(name.span(), format_args!("expected `{name} = \"…\"`"));
        return None;
    }
    let span = span_of(first.as_ref());
    let written = value.to_string();
    let literal = (|input: syn::parse::ParseStream<'_>| input.parse::<LitStr>()).parse2(value);
    literal
        .map_err(|_| errors.at(span, wanted_string(name, first.as_ref(), &written)))
        .ok()
}

fn wanted_string(name: &Ident, first: Option<&TokenTree>, written: &str) -> String {
    match first {
        Some(TokenTree::Ident(_)) if written.contains('!') => {
            format!(
                "a macro is not expanded here: write the text of `{name}` as one string literal"
            )
        }
        Some(TokenTree::Ident(word)) if word == written => format!("write `{name} = \"{word}\"`"),
        _ => format!("`{name}` is a string literal: write `{name} = \"…\"`"),
    }
}

fn expression(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<TokenStream> {
    if value.is_empty() {
        errors.at(name.span(), format_args!("expected `{name} = …`"));
        return None;
    }
    Some(value)
}

fn listed() -> String {
    let (last, rest) = NAMES.split_last().unwrap_or((&"", &[]));
    format!("`{}` or `{last}`", rest.join("`, `"))
}

fn span_of(token: Option<&TokenTree>) -> Span {
    token.map_or_else(Span::call_site, TokenTree::span)
}

/// Splits at the commas between arguments; those inside a turbofish (`get::<A, B>()`) are not.
pub(crate) fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts: Vec<Vec<TokenTree>> = vec![Vec::new()];
    let (mut angles, mut before) = (0_usize, [' '; 2]);
    for token in tokens {
        let mut character = ' ';
        if let TokenTree::Punct(punct) = &token {
            character = punct.as_char();
            match character {
                // After `::` or inside another one: elsewhere it is "less than".
                '<' if angles > 0 || before == [':', ':'] => angles += 1,
                '>' if before[1] != '-' => angles = angles.saturating_sub(1),
                ',' if angles == 0 => {
                    parts.push(Vec::new());
                    before = [' '; 2];
                    continue;
                }
                _ => {}
            }
            if punct.spacing() == Spacing::Alone && character != ':' {
                character = ' ';
            }
        }
        before = [before[1], character];
        if let Some(part) = parts.last_mut() {
            part.push(token);
        }
    }
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(TokenStream::from_iter)
        .collect()
}

/// `$x:literal`, `$x:expr` and `$x:block` arrive from `macro_rules!` inside a group without delimiters.
pub(crate) fn ungrouped(token: TokenTree) -> TokenTree {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            let mut inner = group.stream().into_iter();
            match (inner.next(), inner.next()) {
                (Some(only), None) => ungrouped(only),
                _ => TokenTree::Group(group),
            }
        }
        token => token,
    }
}
