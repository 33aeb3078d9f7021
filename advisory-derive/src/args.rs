//! What is written between the parentheses of the attribute.

use crate::errors::Errors;
use crate::seen::Sharing;
use crate::tokens::{split_at_commas, ungrouped};
use advisory_pattern::Derivation;
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::{LitInt, LitStr};

/// The arguments as written. `None` is "not given".
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) keys: Option<Vec<KeyArg>>,
    pub(crate) with: Option<Vec<(Ident, TokenStream)>>,
    scope: Option<String>,
    pub(crate) conn: Option<TokenStream>,
    pub(crate) derivation: Option<Derivation>,
    pub(crate) max_keys: Option<LitInt>,
    pub(crate) allow_ambiguous: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) component: Option<LitStr>,
    /// The other locks' names, and why; one argument each.
    pub(crate) allow_overlap: Vec<(LitStr, LitStr)>,
    pub(crate) krate: Option<TokenStream>,
    /// What was given at all, right or wrong.
    given: Vec<String>,
}

/// One key as written.
pub(crate) enum KeyArg {
    /// A string literal: a key pattern.
    Pattern(LitStr),
    /// Anything else: an expression that is a `LockKey`.
    Expression(TokenStream),
}

impl Args {
    pub(crate) fn sharing(&self) -> Sharing {
        Sharing {
            name: self.name.as_ref().map(LitStr::value),
            allowed: self
                .allow_overlap
                .iter()
                .map(|(other, _)| other.value())
                .collect(),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|given| given == name)
    }

    /// Reads arguments of which only those of `known` make sense.
    pub(crate) fn parse(tokens: TokenStream, known: &[&str], errors: &mut Errors) -> Self {
        let mut args = Self::default();
        for argument in split_at_commas(tokens) {
            let mut tokens = argument.into_iter();
            let (name, equals) = (tokens.next(), tokens.next());
            if let Some(TokenTree::Literal(literal)) = &name
                && known.contains(&"key")
            {
                args.given.push("key".to_owned());
                errors.at(literal.span(), format_args!("write `key = {literal}`"));
                continue;
            }
            let Some(TokenTree::Ident(name)) = name else {
                errors.at(
                    span_of(name.as_ref()),
                    format_args!("expected an argument: {}", listed(known)),
                );
                continue;
            };
            let word = name.to_string();
            if !known.contains(&word.as_str()) {
                let hint = advisory_pattern::closest(&word, known.iter().copied()).map_or_else(
                    || format!("expected {}", listed(known)),
                    |close| format!("did you mean `{close}`?"),
                );
                errors.at(
                    name.span(),
                    format_args!("unknown argument `{word}`: {hint}"),
                );
                continue;
            }
            args.given.push(word.clone());
            if word == "with" {
                set(
                    &mut args.with,
                    &name,
                    computed(equals, &name, errors),
                    errors,
                );
                continue;
            }
            if word == "allow_overlap" {
                args.allow_overlap
                    .extend(overlap(equals.as_ref(), &name, errors));
                continue;
            }
            if !matches!(&equals, Some(TokenTree::Punct(punct)) if punct.as_char() == '=') {
                errors.at(name.span(), format_args!("expected `{word} = …`"));
                continue;
            }
            let value: TokenStream = tokens.collect();
            if value.is_empty() {
                errors.at(name.span(), format_args!("expected `{word} = …`"));
                continue;
            }
            match word.as_str() {
                "key" => set(
                    &mut args.keys,
                    &name,
                    key(value, errors).map(|key| vec![key]),
                    errors,
                ),
                "keys" => set(&mut args.keys, &name, keys(value, errors), errors),
                "scope" => set(
                    &mut args.scope,
                    &name,
                    choice(value, &name, &["xact"], errors),
                    errors,
                ),
                "conn" => set(&mut args.conn, &name, Some(value), errors),
                "derivation" => set(
                    &mut args.derivation,
                    &name,
                    derivation(value, &name, errors),
                    errors,
                ),
                "name" => set(&mut args.name, &name, string(value, &name, errors), errors),
                "component" => set(
                    &mut args.component,
                    &name,
                    string(value, &name, errors),
                    errors,
                ),
                "max_keys" => set(
                    &mut args.max_keys,
                    &name,
                    number(value, &name, errors),
                    errors,
                ),
                "allow_ambiguous" => set(
                    &mut args.allow_ambiguous,
                    &name,
                    reason(value, &name, errors),
                    errors,
                ),
                _ => set(&mut args.krate, &name, Some(value), errors),
            }
        }
        args
    }
}

/// The only place that can say "given twice".
fn set<T>(slot: &mut Option<T>, name: &Ident, value: Option<T>, errors: &mut Errors) {
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

fn key(value: TokenStream, errors: &mut Errors) -> Option<KeyArg> {
    let mut tokens = value.clone().into_iter();
    let (first, second) = (tokens.next(), tokens.next());
    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(bang))) = (&first, &second)
        && bang.as_char() == '!'
    {
        errors.at(
            name.span(),
            "a macro is not expanded here: write the key pattern as one string literal",
        );
        return None;
    }
    Some(syn::parse2(value.clone()).map_or(KeyArg::Expression(value), KeyArg::Pattern))
}

fn keys(value: TokenStream, errors: &mut Errors) -> Option<Vec<KeyArg>> {
    let mut tokens = value.into_iter();
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
                    "`keys` names no key: write `keys = [\"account:<from>\", \"account:<to>\"]`",
                );
            }
            Some(keys)
        }
        (list, _) => {
            let wanted = "`keys` is a list: write `keys = [\"account:<from>\", \"account:<to>\"]`, or `key = …` for one key";
            errors.at(span_of(list.as_ref()), wanted);
            None
        }
    }
}

/// `with(name = expression, …)`.
fn computed(
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

/// `allow_overlap("other-name", "reason")`.
fn overlap(
    group: Option<&TokenTree>,
    name: &Ident,
    errors: &mut Errors,
) -> Option<(LitStr, LitStr)> {
    let parts = match group {
        Some(TokenTree::Group(group)) => split_at_commas(group.stream()),
        _ => Vec::new(),
    };
    let literal = |part: &TokenStream| syn::parse2::<LitStr>(part.clone()).ok();
    if let [other, why] = parts.as_slice()
        && let (Some(other), Some(why)) = (literal(other), literal(why))
        && !why.value().trim().is_empty()
    {
        return Some((other, why));
    }
    let wanted = "write `allow_overlap(\"the other lock's name\", \"the reason\")`";
    errors.at(name.span(), wanted);
    None
}

fn string(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitStr> {
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

/// One of a few words, quoted.
fn choice(value: TokenStream, name: &Ident, known: &[&str], errors: &mut Errors) -> Option<String> {
    let word: Option<Ident> = syn::parse2(value.clone()).ok();
    let (given, span) = if let Some(word) = &word {
        (word.to_string(), word.span())
    } else {
        let literal = string(value, name, errors)?;
        (literal.value(), literal.span())
    };
    if !known.contains(&given.as_str()) {
        let quoted: Vec<String> = known.iter().map(|word| format!("\"{word}\"")).collect();
        let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
        let hint = advisory_pattern::closest(&given, known.iter().copied()).map_or_else(
            || format!("expected {}", listed(&quoted)),
            |close| format!("did you mean `\"{close}\"`?"),
        );
        errors.at(span, format_args!("unknown {name} `{given}`: {hint}"));
        return None;
    }
    if word.is_some() {
        errors.at(span, format_args!("write `{name} = \"{given}\"`"));
        return None;
    }
    Some(given)
}

fn derivation(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Derivation> {
    let names = Derivation::ALL.map(Derivation::name);
    Derivation::from_name(&choice(value, name, &names, errors)?)
}

fn number(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitInt> {
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

fn reason(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<LitStr> {
    let reason = string(value, name, errors)?;
    if reason.value().trim().is_empty() {
        errors.at(
            reason.span(),
            format_args!("`{name}` says why: write `{name} = \"keys of the old service\"`"),
        );
    }
    Some(reason)
}

fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, [])) => format!("`{last}`"),
        Some((last, rest)) => format!("`{}` or `{last}`", rest.join("`, `")),
        None => String::new(),
    }
}

fn span_of(token: Option<&TokenTree>) -> Span {
    token.map_or_else(Span::call_site, TokenTree::span)
}
