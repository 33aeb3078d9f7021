//! The arguments of the macros, as they are written.

pub(crate) mod argument;
pub(crate) mod call;
pub(crate) mod choice;
pub(crate) mod duration;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod pattern;
pub(crate) mod value;

use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::tokens::{is_punct, split_at_commas};
use argument::{Argument, Known, name_of, value_of};
use key::with;
use proc_macro2::{Ident, Spacing, Span, TokenStream, TokenTree};
use quote::quote;
use syn::LitStr;
use value::{expression, label, overlap, string};

/// The arguments of every macro that has a key. `None` is "not given".
#[derive(Default)]
pub(crate) struct SiteArgs {
    pub(crate) with: Option<Vec<(Ident, TokenStream)>>,
    pub(crate) name: Option<LitStr>,
    pub(crate) component: Option<LitStr>,
    /// The other lock's name and the reason, of each `allow_overlap`.
    pub(crate) allow_overlap: Vec<(LitStr, LitStr)>,
    krate: Option<TokenStream>,
    /// Every argument that was given, right or wrong.
    given: Vec<(String, Span)>,
}

impl SiteArgs {
    pub(crate) fn name(&self) -> Option<String> {
        self.name.as_ref().map(LitStr::value)
    }

    pub(crate) fn allowed_overlaps(&self) -> Vec<String> {
        let others = self.allow_overlap.iter();
        others.map(|(other, _)| other.value()).collect()
    }

    pub(crate) fn runtime(&self) -> TokenStream {
        runtime(self.krate.as_ref())
    }

    pub(crate) fn refuse(&self, unfit: &[(&str, &str)], errors: &mut Errors) {
        for (name, message) in unfit {
            if let Some(span) = self.span(name) {
                errors.at(span, message);
            }
        }
    }

    /// Without a table there is nothing that the lock could be redundant to.
    fn refuse_redundant_without_guards(&self, errors: &mut Errors) {
        if !self.has("guards") {
            let message = "`allow_redundant` has no effect without `guards`: name the tables there, or leave `allow_redundant` out";
            self.refuse(&[("allow_redundant", message)], errors);
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.span(name).is_some()
    }

    pub(crate) fn span(&self, name: &str) -> Option<Span> {
        let mut given = self.given.iter();
        given
            .find(|(given, _)| given == name)
            .map(|(_, span)| *span)
    }

    fn note(&mut self, name: &str, span: Span) {
        self.given.push((name.to_owned(), span));
    }

    /// Reads arguments, of which only the known ones are accepted; `read` has the values of those
    /// that not all macros have.
    pub(crate) fn parse(
        tokens: TokenStream,
        known: Known<'_>,
        errors: &mut Errors,
        mut read: impl FnMut(Argument<'_>),
    ) -> Self {
        let mut args = Self::default();
        let arguments = separate(tokens, known, errors);
        let has_key = known.names.contains(&"key");
        let pair = key::unnamed_pair(&arguments).filter(|_| has_key);
        for argument in arguments {
            let mut tokens = argument.into_iter();
            let (name, equals) = (tokens.next(), tokens.next());
            if let Some(TokenTree::Ident(word)) = &name
                && argument::suggestion(&word.to_string()) == Some("key")
            {
                args.note("key", word.span());
            }
            if let Some(TokenTree::Literal(literal)) = &name
                && has_key
            {
                if args.has("keys") {
                    // The value of `keys` shows it.
                } else if let Some(pair) = &pair {
                    if !args.has("key") {
                        errors.at(literal.span(), pair);
                    }
                } else {
                    errors.at(literal.span(), format_args!("write `key = {literal}`"));
                }
                args.note("key", literal.span());
                continue;
            }
            let value: TokenStream = tokens.collect();
            if let Some(TokenTree::Ident(word)) = &name {
                // Also one that the macro does not have: a check can say what to write instead.
                args.note(&word.to_string(), word.span());
            }
            let Some(name) = name_of(name, &value, known, errors) else {
                continue;
            };
            match name.to_string().as_str() {
                "with" => {
                    let value = equals.into_iter().collect();
                    let name = &name;
                    let with_values = Argument {
                        name,
                        value,
                        errors,
                    };
                    with_values.set(&mut args.with, with);
                }
                "allow_overlap" => {
                    let overlap = overlap(equals.as_ref(), &name, errors);
                    args.allow_overlap.extend(overlap);
                }
                _ => {
                    if let Some(value) = value_of(&name, equals.as_ref(), value, errors) {
                        let name = &name;
                        args.read(
                            Argument {
                                name,
                                value,
                                errors,
                            },
                            &mut read,
                        );
                    }
                }
            }
        }
        args
    }

    fn read(&mut self, argument: Argument<'_>, read: &mut impl FnMut(Argument<'_>)) {
        match argument.name.to_string().as_str() {
            "name" => argument.set(&mut self.name, label),
            "component" => argument.set(&mut self.component, string),
            "crate" => argument.set(&mut self.krate, expression),
            _ => read(argument),
        }
    }
}

/// Splits the arguments, and reports a comma that is missing between two of them. The texts of
/// `keys = "a", "b"` stay together.
fn separate(tokens: TokenStream, known: Known<'_>, errors: &mut Errors) -> Vec<TokenStream> {
    const COMMA: &str = "write `,` between two arguments";
    let mut arguments: Vec<TokenStream> = Vec::new();
    for argument in split_at_commas(tokens) {
        let tokens: Vec<TokenTree> = argument.into_iter().collect();
        if let ([TokenTree::Literal(_)], Some(list)) = (tokens.as_slice(), arguments.last_mut())
            && key::is_list_of_texts(list)
        {
            list.extend(quote!(, #(#tokens)*));
            continue;
        }
        let mut start = 0;
        for (index, token) in tokens.iter().enumerate() {
            // After a name, `=` and a value: `key = "a" scope = "xact"`.
            let is_next = index > start + 2
                && matches!(token, TokenTree::Ident(name) if known.names.iter().any(|known| name == known))
                && tokens.get(index + 1).is_some_and(is_assignment)
                && matches!(
                    &tokens[index - 1],
                    TokenTree::Literal(_) | TokenTree::Ident(_) | TokenTree::Group(_)
                );
            let end = if is_punct(token, ';') {
                index + 1
            } else if is_next {
                index
            } else {
                continue;
            };
            errors.at(token.span(), COMMA);
            arguments.push(tokens[start..index].iter().cloned().collect());
            start = end;
        }
        arguments.push(tokens[start..].iter().cloned().collect());
    }
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

/// Returns whether a token is `=`, and not the start of `==` or `=>`.
fn is_assignment(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '=' && punct.spacing() == Spacing::Alone)
}

impl Attribute {
    pub(crate) const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Lock => &lock::NAMES,
            Self::Lease => &lease::NAMES,
        }
    }
}

/// The path of the runtime, if `crate` does not give another one.
pub(crate) fn runtime(krate: Option<&TokenStream>) -> TokenStream {
    krate.cloned().unwrap_or_else(|| quote!(::advisory_runtime))
}

#[cfg(test)]
mod tests {
    use super::argument::Known;
    use super::{lease, lock, pattern, separate};
    use crate::attribute::Attribute;
    use crate::errors::Errors;

    #[test]
    fn a_missing_comma_is_found_and_the_arguments_after_it_are_read() {
        for (written, wanted, missing) in [
            ("key = 7, wait = now()", "key=7|wait=now()", 0),
            (
                "key = \"a\" scope = \"xact\"",
                "key=\"a\"|scope=\"xact\"",
                1,
            ),
            (
                "key = 7; wait = now() mode = x",
                "key=7|wait=now()|mode=x",
                2,
            ),
            (
                "keys = \"a\", \"b\", wait = w",
                "keys=\"a\",\"b\"|wait=w",
                0,
            ),
            ("key = a.wait == b", "key=a.wait==b", 0),
            ("err = |wait| wait = 7", "err=|wait|wait=7", 0),
            ("key = { mode = 7; mode }", "key={mode=7;mode}", 0),
        ] {
            let mut errors = Errors::default();
            let tokens = written.parse().expect("tokens");
            let found = separate(tokens, Known::of(Attribute::Lock), &mut errors);
            let found = found.iter().map(|found| found.to_string().replace(' ', ""));
            assert_eq!(found.collect::<Vec<_>>().join("|"), wanted, "{written}");
            let messages = errors.into_compile_errors().to_string();
            let count = messages.matches("between two arguments").count();
            assert_eq!(count, missing, "{written}");
        }
    }

    /// An argument that is accepted but not read would have no effect and give no error.
    #[test]
    fn every_known_argument_is_implemented() {
        let read = |name: &str, parse: fn(proc_macro2::TokenStream, &mut Errors)| {
            let mut errors = Errors::default();
            let written = format!("{name} = \"x\"").parse().expect("tokens");
            parse(written, &mut errors);
            let errors = errors.into_compile_errors().to_string();
            assert!(!errors.contains("is not implemented"), "{errors}");
            assert!(!errors.contains("unknown argument"), "{errors}");
        };
        for name in Attribute::Lock.arguments() {
            read(name, |tokens, errors| drop(lock::parse(tokens, errors)));
        }
        for name in Attribute::Lease.arguments() {
            read(name, |tokens, errors| drop(lease::parse(tokens, errors)));
        }
        for name in pattern::KNOWN {
            read(name, |tokens, errors| drop(pattern::parse(tokens, errors)));
        }
    }
}
