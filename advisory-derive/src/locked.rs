//! What a site locks: its keys, and how they become numbers.

use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use crate::key::{KeyPattern, Names};
use crate::key_arg::KeyArg;
use crate::seen::{self, Known};
use advisory_pattern::Derivation;
use proc_macro2::{Ident, Span, TokenStream};

/// How many locks a call takes at most, unless said otherwise: the lock table is shared by everybody.
const MAX_KEYS: usize = 64;

/// What is locked.
pub(crate) struct Locked {
    pub(crate) keys: Vec<Key>,
    pub(crate) with: Vec<(Ident, TokenStream)>,
    /// A `with` that is wrong may have meant any name.
    with_is_known: bool,
    pub(crate) derivation: Derivation,
    pub(crate) max_keys: usize,
    pub(crate) may_be_ambiguous: bool,
}

/// One key, or for a slice one key an element.
pub(crate) enum Key {
    Pattern(KeyPattern),
    Expression(TokenStream),
    /// As many declared locks as the expression gives; it stands alone.
    Each(TokenStream),
}

impl Locked {
    pub(crate) fn new(args: &mut Args, errors: &mut Errors) -> Self {
        if args.keys.is_none() && !args.has("key") && !args.has("keys") {
            let wanted =
                "`key` is missing: write what to lock, such as `key = \"<tenant_id>:<date>\"`";
            errors.at(Span::call_site(), wanted);
        }
        let with_is_known = args.with.is_some() || !args.has("with");
        let mut keys = Vec::new();
        for key in args.keys.take().into_iter().flatten() {
            match key {
                KeyArg::Pattern(literal) => {
                    keys.extend(KeyPattern::parse(literal, errors).map(Key::Pattern));
                }
                KeyArg::Expression(expression) => keys.push(Key::Expression(expression)),
                KeyArg::Each(expression) => keys.push(Key::Each(expression)),
            }
        }
        let max_keys = args
            .max_keys
            .as_ref()
            .and_then(|max| max.base10_parse().ok());
        Self {
            keys,
            with: args.with.take().unwrap_or_default(),
            with_is_known,
            derivation: args.derivation.unwrap_or(Derivation::Sha256),
            max_keys: max_keys.unwrap_or(MAX_KEYS),
            may_be_ambiguous: args.allow_ambiguous.is_some(),
        }
    }

    pub(crate) fn patterns(&self) -> impl Iterator<Item = &KeyPattern> {
        self.keys.iter().filter_map(|key| match key {
            Key::Pattern(pattern) => Some(pattern),
            Key::Expression(_) | Key::Each(_) => None,
        })
    }

    /// What placeholders can name: values that `with` computes, and what parameters bind.
    pub(crate) fn names<'a>(&'a self, function: &'a Function) -> Names<'a> {
        let with = self.with.iter().map(|(name, _)| (name, None));
        let params = function.params.iter().flat_map(|param| {
            let ty = param.is_name.then_some(&param.ty);
            param.names.iter().map(move |name| (name, ty))
        });
        Names {
            of: format!("parameter of `{}`", function.name),
            known: self.with_is_known.then(|| with.chain(params).collect()),
            has_self: function.receiver.is_some(),
        }
    }

    /// Each key as far as it is known before the program runs.
    pub(crate) fn known(&self, names: &Names<'_>) -> Vec<Known> {
        let known = |key: &Key| match key {
            Key::Pattern(pattern) => pattern.known(names),
            Key::Expression(expression) | Key::Each(expression) => Known {
                written: expression.to_string(),
                key: match key {
                    Key::Expression(expression) => seen::fixed(expression),
                    _ => None,
                },
                span: expression
                    .clone()
                    .into_iter()
                    .next()
                    .map_or_else(Span::call_site, |token| token.span()),
            },
        };
        self.keys.iter().map(known).collect()
    }
}
