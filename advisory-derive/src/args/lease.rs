//! The arguments of `#[advisory_lease]`.

use super::SiteArgs;
use super::argument::{Known, set};
use super::call::{CallArgs, uses};
use super::duration::{Duration, KEEP, RENEW, TTL, bound};
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
    let site = SiteArgs::parse(tokens, known, errors, |name, value, errors| {
        lease.read(name, value, &mut call, errors);
    });
    (site, call, lease)
}

impl LeaseArgs {
    pub(crate) fn use_name(&self, name: &Ident) -> bool {
        uses([self.on_done.as_ref()], name)
    }

    fn read(&mut self, name: &Ident, value: TokenStream, call: &mut CallArgs, errors: &mut Errors) {
        macro_rules! set {
            ($slot:ident, $value:expr) => {{
                let value = $value;
                set(&mut self.$slot, name, value, errors);
            }};
        }
        match name.to_string().as_str() {
            "key" => set!(key, one_key(value, errors)),
            "ttl" => set!(ttl, bound(value, name, &TTL, errors)),
            "renew" => set!(renew, bound(value, name, &RENEW, errors)),
            "keep" => set!(keep, bound(value, name, &KEEP, errors)),
            "on_done" => set!(on_done, returned(value, name, errors)),
            _ => call.read(name, value, errors),
        }
    }
}

/// The key, unless it is a list of several or a pair of numbers.
fn one_key(value: TokenStream, errors: &mut Errors) -> Option<KeyArg> {
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
