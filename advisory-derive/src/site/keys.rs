//! The keys of a lock site, and how they become numbers.

use crate::args::Args;
use crate::args::key::KeyArg;
use crate::errors::Errors;
use crate::function::{Function, mentions};
use crate::key_pattern::KeyPattern;
use crate::key_pattern::names::Names;
use crate::site_facts::StaticKey;
use proc_macro2::{Ident, Span, TokenStream};

pub(crate) struct SiteKeys {
    pub(crate) list: Vec<SiteKey>,
    pub(crate) with: Vec<(Ident, TokenStream)>,
    /// A wrong `with` could have meant any name.
    with_is_known: bool,
}

pub(crate) enum SiteKey {
    Pattern(KeyPattern),
    Expression(TokenStream),
    /// All declared locks that the expression gives; it excludes any other key.
    Each(TokenStream),
}

impl SiteKeys {
    pub(crate) fn new(args: &mut Args, errors: &mut Errors) -> Self {
        let given = args.keys.take();
        if given.is_none() && !args.has("key") && !args.has("keys") {
            let wanted =
                "`key` is missing: write what to lock, such as `key = \"<tenant_id>:<date>\"`";
            errors.at(Span::call_site(), wanted);
        }
        let with_is_known = args.with.is_some() || !args.has("with");
        let mut list = Vec::new();
        for key in given.into_iter().flatten() {
            match key {
                KeyArg::Pattern { first, literal } => {
                    list.extend(KeyPattern::parse(first, literal, errors).map(SiteKey::Pattern));
                }
                KeyArg::Expression(expression) => list.push(SiteKey::Expression(expression)),
                KeyArg::Each(expression) => list.push(SiteKey::Each(expression)),
            }
        }
        Self {
            list,
            with: args.with.take().unwrap_or_default(),
            with_is_known,
        }
    }

    pub(crate) fn patterns(&self) -> impl Iterator<Item = &KeyPattern> {
        self.list.iter().filter_map(|key| match key {
            SiteKey::Pattern(pattern) => Some(pattern),
            SiteKey::Expression(_) | SiteKey::Each(_) => None,
        })
    }

    /// The names that placeholders can use: those of `with`, and those that parameters bind.
    pub(crate) fn names<'a>(&'a self, function: &'a Function) -> Names<'a> {
        let with = self.with.iter().map(|(name, _)| (name, None));
        let params = function.params.iter().flat_map(|param| {
            let ty = param.is_name.then_some(&param.ty);
            param.names.iter().map(move |name| (name, ty))
        });
        let destructured = function.destructured.iter().map(|name| (name, None));
        Names {
            of: format!("parameter of `{}`", function.name),
            known: self
                .with_is_known
                .then(|| with.chain(params).chain(destructured).collect()),
            has_self: function.receiver.is_some(),
            computed: &[],
        }
    }

    pub(crate) fn use_name(&self, name: &Ident) -> bool {
        let mut with = self.with.iter();
        let is_in_key = |key: &SiteKey| match key {
            SiteKey::Pattern(pattern) => pattern.has_root(name),
            SiteKey::Expression(key) | SiteKey::Each(key) => mentions(key, &name.to_string()),
        };
        self.list.iter().any(is_in_key) || with.any(|(_, value)| mentions(value, &name.to_string()))
    }

    /// Returns whether the body can ask for a witness: it has a handle and names `holding`, and not
    /// all keys are patterns.
    pub(crate) fn give_witness(&self, args: &Args, function: &Function) -> bool {
        let mut keys = self.list.iter();
        args.handle.is_some()
            && keys.any(|key| !matches!(key, SiteKey::Pattern(_)))
            && mentions(&function.body.stream(), "holding")
    }

    pub(crate) fn static_keys(&self, names: &Names<'_>) -> Vec<StaticKey> {
        let keys = self.list.iter().map(|key| match key {
            SiteKey::Pattern(pattern) => pattern.static_key(names),
            SiteKey::Expression(expression) => StaticKey::of_expression(expression),
            SiteKey::Each(expression) => StaticKey::unknown(expression),
        });
        keys.collect()
    }
}
