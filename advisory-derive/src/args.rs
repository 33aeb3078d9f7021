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
use argument::{Known, name_of, set, value_of};
use key::with;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::LitStr;
use value::{label, overlap, string};

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
    given: Vec<Given>,
}

struct Given {
    name: String,
    span: Span,
    value: TokenStream,
}

impl SiteArgs {
    /// The lock's name.
    pub(crate) fn name(&self) -> Option<String> {
        self.name.as_ref().map(LitStr::value)
    }

    /// The names of the locks that this one may overlap.
    pub(crate) fn allowed_overlaps(&self) -> Vec<String> {
        let others = self.allow_overlap.iter();
        others.map(|(other, _)| other.value()).collect()
    }

    /// The path of the runtime.
    pub(crate) fn runtime(&self) -> TokenStream {
        runtime(self.krate.as_ref())
    }

    /// Refuses arguments that do not fit, each with its message.
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
            let message = "`allow_redundant` is about the tables of `guards`: name them there, or leave it out";
            self.refuse(&[("allow_redundant", message)], errors);
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.span(name).is_some()
    }

    /// The span of an argument's name, if the argument was given.
    pub(crate) fn span(&self, name: &str) -> Option<Span> {
        self.given(name).map(|given| given.span)
    }

    /// The value of an argument as it is written, also of one that the attribute does not have.
    pub(crate) fn written(&self, name: &str) -> Option<&TokenStream> {
        self.given(name).map(|given| &given.value)
    }

    fn given(&self, name: &str) -> Option<&Given> {
        self.given.iter().find(|given| given.name == name)
    }

    fn note(&mut self, name: &str, span: Span, value: &TokenStream) {
        self.given.push(Given {
            name: name.to_string(),
            span,
            value: value.clone(),
        });
    }

    /// Reads arguments, of which only the known ones are accepted; `read` has the values of those that not all macros have.
    pub(crate) fn parse(
        tokens: TokenStream,
        known: Known<'_>,
        errors: &mut Errors,
        mut read: impl FnMut(&Ident, TokenStream, &mut Errors),
    ) -> Self {
        let mut args = Self::default();
        let arguments = split_at_commas(tokens);
        let has_key = known.names.contains(&"key");
        let pair = key::unnamed_pair(&arguments).filter(|_| has_key);
        for argument in arguments {
            let mut semicolons = argument.clone().into_iter();
            if let Some(semicolon) = semicolons.find(|token| is_punct(token, ';')) {
                errors.at(semicolon.span(), "write `,` between two arguments");
                // The text after it is not read, and could be any argument.
                args.note("key", semicolon.span(), &TokenStream::new());
                continue;
            }
            let mut tokens = argument.into_iter();
            let (name, equals) = (tokens.next(), tokens.next());
            if let Some(TokenTree::Ident(word)) = &name
                && argument::suggestion(&word.to_string()) == Some("key")
            {
                args.note("key", word.span(), &TokenStream::new());
            }
            if let Some(TokenTree::Literal(literal)) = &name
                && has_key
            {
                if let Some(pair) = &pair {
                    if !args.has("key") {
                        errors.at(literal.span(), pair);
                    }
                } else {
                    errors.at(literal.span(), format_args!("write `key = {literal}`"));
                }
                args.note("key", literal.span(), &TokenStream::new());
                continue;
            }
            let value: TokenStream = tokens.collect();
            if let Some(TokenTree::Ident(word)) = &name {
                // Also one of the other attribute: a check can say what to write instead.
                args.note(&word.to_string(), word.span(), &value);
            }
            let Some(name) = name_of(name, &value, known, errors) else {
                continue;
            };
            match name.to_string().as_str() {
                "with" => set(&mut args.with, &name, with(equals, &name, errors), errors),
                "allow_overlap" => {
                    let overlap = overlap(equals.as_ref(), &name, errors);
                    args.allow_overlap.extend(overlap);
                }
                _ => {
                    if let Some(value) = value_of(&name, equals.as_ref(), value, errors) {
                        args.read(&name, value, errors, &mut read);
                    }
                }
            }
        }
        args
    }

    /// Reads the value of an argument.
    fn read(
        &mut self,
        name: &Ident,
        value: TokenStream,
        errors: &mut Errors,
        read: &mut impl FnMut(&Ident, TokenStream, &mut Errors),
    ) {
        match name.to_string().as_str() {
            "name" => set(&mut self.name, name, label(value, name, errors), errors),
            "component" => {
                let component = string(value, name, errors);
                set(&mut self.component, name, component, errors);
            }
            "crate" => set(&mut self.krate, name, Some(value), errors),
            _ => read(name, value, errors),
        }
    }
}

impl Attribute {
    /// The names of its arguments.
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
    use super::{lease, lock, pattern};
    use crate::attribute::Attribute;
    use crate::errors::Errors;

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
