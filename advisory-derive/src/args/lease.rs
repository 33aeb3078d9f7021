//! The arguments of `#[advisory_lease]`.

use super::SiteArgs;
use super::argument::{Argument, Known};
use super::call::{CallArgs, uses};
use super::duration::{Duration, KEEP, RENEW, TTL};
use super::key::{KeyArg, key, pair};
use super::value::returned;
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::tokens::{first_span, ungrouped};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

/// Every argument. Each is read below, or in `call.rs` or `args.rs` if a lock has it too.
pub(super) const NAMES: [&str; 15] = [
    "key",
    "with",
    "name",
    "pool",
    "ttl",
    "renew",
    "keep",
    "wait",
    "on_held",
    "on_done",
    "handle",
    "err",
    "component",
    "allow_overlap",
    "crate",
];

#[derive(Default)]
pub(crate) struct LeaseArgs {
    pub(crate) key: Option<KeyArg>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) renew: Option<Duration>,
    pub(crate) keep: Option<Duration>,
    pub(crate) on_done: Option<TokenStream>,
}

pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> (SiteArgs, CallArgs, LeaseArgs) {
    let (mut call, mut lease) = (CallArgs::default(), LeaseArgs::default());
    let known = Known::of(Attribute::Lease);
    let site = SiteArgs::parse(tokens, known, errors, |argument| {
        lease.read(argument, &mut call);
    });
    (site, call, lease)
}

impl LeaseArgs {
    pub(crate) fn use_name(&self, name: &Ident) -> bool {
        uses([self.on_done.as_ref()], name)
    }

    fn read(&mut self, argument: Argument<'_>, call: &mut CallArgs) {
        match argument.name.to_string().as_str() {
            "key" => argument.set(&mut self.key, one_key),
            "ttl" => argument.set_time(&mut self.ttl, &TTL),
            "renew" => argument.set_time(&mut self.renew, &RENEW),
            "keep" => argument.set_time(&mut self.keep, &KEEP),
            "on_done" => argument.set(&mut self.on_done, returned),
            _ => call.read(argument),
        }
    }
}

/// The key, unless it is a list of several or a pair of numbers.
fn one_key(value: TokenStream, _: &Ident, errors: &mut Errors) -> Option<KeyArg> {
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
        errors.at(first_span(&value), wanted);
        return None;
    }
    key(value, errors)
}

const ONE_KEY: &str =
    "a lease has one key: write a key pattern, `key = \"job:<id>\"`, or a declared lock";
