//! The values of `key`, `keys` and `with`.

use crate::errors::Errors;
use crate::tokens::{first_span, is_punct, is_word, span_of, spelled, split_at_commas, ungrouped};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::{LitInt, LitStr};

/// One key as written.
pub(crate) enum KeyArg {
    /// A string literal is a key pattern, and derives the second half of a pair: `(7, "<id>")`.
    Pattern { first: Option<i32>, literal: LitStr },
    /// Anything else: an expression that is a `LockKey`.
    Expression(TokenStream),
    /// An expression that gives any number of `LockKey`s.
    Each(TokenStream),
}

pub(crate) fn key(value: TokenStream, errors: &mut Errors) -> Option<KeyArg> {
    let mut tokens = value.clone().into_iter();
    let (first, second) = (tokens.next().map(ungrouped), tokens.next());
    if let (Some(TokenTree::Group(list)), None) = (&first, &second) {
        match pair(list) {
            Some(Ok((first, literal))) => {
                let first = Some(first);
                return Some(KeyArg::Pattern { first, literal });
            }
            Some(Err(wide)) => {
                let wanted = format_args!(
                    "the first half of a pair has 32 bits, and {wide} does not fit: write a number from {} to {}",
                    i32::MIN,
                    i32::MAX
                );
                return errors.refuse(wide.span(), wanted);
            }
            None => {}
        }
        if let Some(wanted) = instead_of(list) {
            return errors.refuse(first_span(&value), wanted);
        }
    }
    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(bang))) = (&first, &second)
        && bang.as_char() == '!'
    {
        return errors.refuse(
            name.span(),
            "a macro cannot be expanded here: write the key pattern as one string literal",
        );
    }
    if let Some(wanted) = unquoted_pattern(&value) {
        return errors.refuse(first_span(&value), wanted);
    }
    Some(match syn::parse2(value.clone()) {
        Ok(literal) => KeyArg::Pattern {
            first: None,
            literal,
        },
        Err(_) => KeyArg::Expression(value),
    })
}

/// The key of a lease, unless it is a list of several or a pair of numbers.
pub(crate) fn lease_key(value: TokenStream, errors: &mut Errors) -> Option<KeyArg> {
    let mut tokens = value.clone().into_iter();
    if let (Some(TokenTree::Group(list)), None) = (tokens.next().map(ungrouped), tokens.next()) {
        let mut elements = list.stream().into_iter();
        let has_text = elements.any(|element| matches!(element, TokenTree::Literal(literal) if literal.to_string().starts_with('"')));
        let wanted = match (list.delimiter(), pair(&list)) {
            (Delimiter::Parenthesis, Some(Ok((_, pattern)))) => format!(
                "the key of a lease is a text, not two numbers: write `key = \"{}\"`, with a word of its own in front",
                pattern.value()
            ),
            (Delimiter::Bracket, _) | (Delimiter::Parenthesis, Some(Err(_))) => ONE_KEY.to_owned(),
            (Delimiter::Parenthesis, None) if has_text => ONE_KEY.to_owned(),
            _ => return key(value, errors),
        };
        return errors.refuse(first_span(&value), wanted);
    }
    key(value, errors)
}

const ONE_KEY: &str =
    "a lease has one key: write a key pattern, `key = \"job:<id>\"`, or a declared lock";

/// The suggestion for a key pattern without quotes, `account:<id>`, which is not Rust.
pub(crate) fn unquoted_pattern(value: &TokenStream) -> Option<String> {
    let tokens: Vec<TokenTree> = value.clone().into_iter().collect();
    let punct = |index: Option<usize>, wanted| {
        let token = index.and_then(|index| tokens.get(index));
        token.is_some_and(|token| is_punct(token, wanted))
    };
    let is_pattern = (0..tokens.len()).any(|index| {
        let before = index.checked_sub(1);
        let is_colon = punct(Some(index), ':')
            && !punct(Some(index + 1), ':')
            && !punct(before, ':')
            && matches!(before, Some(0));
        // Neither "less than" nor `T::<U>`, nor the start of `<T as U>::f()`.
        let is_after_operator = before.is_none_or(
            |before| matches!(&tokens[before], TokenTree::Punct(sign) if sign.as_char() != '>'),
        );
        let is_path = punct(before, ':') && punct(index.checked_sub(2), ':')
            || tokens.iter().any(|token| is_word(token, "as"));
        is_colon || punct(Some(index), '<') && is_after_operator && !is_path
    });
    let written: String = value.to_string().split_whitespace().collect();
    is_pattern.then(|| format!("a key pattern is a string literal: write `\"{written}\"`"))
}

pub(crate) fn is_list_of_texts(argument: &TokenStream) -> bool {
    let mut tokens = argument.clone().into_iter();
    let is_keys = tokens.next().is_some_and(|name| is_word(&name, "keys"))
        && tokens.next().is_some_and(|equals| is_punct(&equals, '='));
    is_keys && matches!(tokens.next(), Some(TokenTree::Literal(_)))
}

pub(crate) fn keys(value: TokenStream, _: &Ident, errors: &mut Errors) -> Option<Vec<KeyArg>> {
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
            errors.refuse(list.span(), wanted)
        }
        (Some(TokenTree::Literal(first)), Some(comma)) if is_punct(&comma, ',') => {
            let list = value.to_string().replace(" ,", ",");
            let wanted = format_args!("`keys` is a list: write `keys = [{list}]`");
            errors.refuse(first.span(), wanted)
        }
        _ => Some(vec![KeyArg::Each(value)]),
    }
}

/// The halves of a pair with a key pattern as its second half; an error for an unsuitable first
/// half.
fn pair(list: &Group) -> Option<Result<(i32, LitStr), LitInt>> {
    let elements = split_at_commas(list.stream());
    let ([first, second], Delimiter::Parenthesis) = (elements.as_slice(), list.delimiter()) else {
        return None;
    };
    let first: LitInt = syn::parse2(first.clone()).ok()?;
    let second = syn::parse2(second.clone()).ok()?;
    Some(
        first
            .base10_parse()
            .map(|number| (number, second))
            .map_err(|_| first),
    )
}

/// The suggestion for a list of keys, or for a pair that cannot be derived; `None` for other
/// expressions in parentheses.
fn instead_of(list: &Group) -> Option<String> {
    let elements = split_at_commas(list.stream());
    let is_text = |element: &TokenStream| syn::parse2::<LitStr>(element.clone()).is_ok();
    let texts = elements.iter().filter(|element| is_text(element)).count();
    let keys = spelled(&list.stream());
    match (list.delimiter(), elements.len(), texts) {
        // A list would lock other numbers than `pg_advisory_lock(7, hashtext(…))`.
        (Delimiter::Parenthesis, 2, 1) => {
            let half = elements.iter().map(|element| {
                if is_text(element) {
                    "half".to_owned()
                } else {
                    spelled(element)
                }
            });
            let half = half.collect::<Vec<_>>().join(", ");
            let literal = if is_text(&elements[0]) {
                "only the second half of a pair can be a key pattern: write it second"
            } else {
                "the first half of a pair with a key pattern must be a number literal: write one, as in `key = (7, \"<id>\")`"
            };
            Some(format!(
                "{literal}, or compute the pattern's number as an `i32`, `key = ({half})`"
            ))
        }
        (Delimiter::Parenthesis, 2, 2) => Some(format!(
            "two locks go into `keys`: write `keys = [{keys}]`. A pair is one lock and two numbers: compute each as an `i32`, \
             `key = (first, second)`"
        )),
        (Delimiter::Bracket, ..) | (Delimiter::Parenthesis, _, 1..) => Some(format!(
            "several keys go into `keys`: write `keys = [{keys}]`"
        )),
        _ => None,
    }
}

/// The suggestion for two numbers without a name, as `pg_advisory_lock(7, 8)` takes them.
pub(crate) fn unnamed_pair(arguments: &[TokenStream]) -> Option<String> {
    let [first, second, ..] = arguments else {
        return None;
    };
    let is_number = |argument: &TokenStream| syn::parse2::<LitInt>(argument.clone()).is_ok();
    (is_number(first) && is_number(second)).then(|| format!("write `key = ({first}, {second})`"))
}

/// `with(name = expression, …)`.
pub(crate) fn with(
    value: TokenStream,
    name: &Ident,
    errors: &mut Errors,
) -> Option<Vec<(Ident, TokenStream)>> {
    const WANTED: &str = "write `with(name = expression)` and `<name>` in the key";
    let Some(TokenTree::Group(group)) = value.into_iter().next() else {
        return errors.refuse(name.span(), WANTED);
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

#[cfg(test)]
mod tests {
    use super::unquoted_pattern;

    #[test]
    fn a_key_pattern_without_quotes_is_known() {
        for (written, pattern) in [
            ("account:<id>", Some("account:<id>")),
            ("<tenant_id>:<date>", Some("<tenant_id>:<date>")),
            ("<id>", Some("<id>")),
            ("account-<id>", Some("account-<id>")),
            ("account:id", Some("account:id")),
            ("Lock::of(id)", None),
            ("Lock::<i64>::of(id)", None),
            ("of::<A, B>(id)", None),
            ("<A as B>::of(id)", None),
            ("7 - <A as B>::ID", None),
            ("i64::from(a < b)", None),
            ("if a < b { a } else { b }", None),
            ("Slot { room: 7 }", None),
            ("::app::key(id)", None),
            ("-7", None),
        ] {
            let found = unquoted_pattern(&written.parse().expect("tokens"));
            let wanted = pattern
                .map(|text| format!("a key pattern is a string literal: write `\"{text}\"`"));
            assert_eq!(found, wanted, "{written}");
        }
    }
}
