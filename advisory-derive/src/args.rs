//! What is written between the parentheses of the attribute.

use crate::choice::{Isolation, Scope, choice};
use crate::duration::{self, Duration, Wait};
use crate::errors::Errors;
use crate::key_arg::{KeyArg, computed, key, keys};
use crate::literal::{ident, listed, number, reason, span_of, string};
use crate::seen::Sharing;
use crate::tokens::{is_punct, split_at_commas};
use advisory_pattern::Derivation;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::{LitInt, LitStr};

/// The arguments of `#[advisory_lock]`.
pub(crate) const ADVISORY_LOCK: [&str; 24] = [
    "key",
    "keys",
    "with",
    "scope",
    "mode",
    "wait",
    "on_held",
    "max_hold",
    "isolation",
    "nested",
    "queue",
    "handle",
    "conn",
    "pool",
    "ttl",
    "renew",
    "keep",
    "derivation",
    "max_keys",
    "allow_ambiguous",
    "name",
    "component",
    "allow_overlap",
    "crate",
];

/// The arguments as written. `None` is "not given".
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) keys: Option<Vec<KeyArg>>,
    pub(crate) with: Option<Vec<(Ident, TokenStream)>>,
    scope: Option<Scope>,
    is_shared: Option<bool>,
    pub(crate) wait: Option<Wait>,
    pub(crate) on_held: Option<TokenStream>,
    pub(crate) max_hold: Option<Duration>,
    /// Of a lease, as `renew`, `keep` and `pool`.
    pub(crate) ttl: Option<Duration>,
    pub(crate) renew: Option<Duration>,
    pub(crate) keep: Option<Duration>,
    pub(crate) pool: Option<TokenStream>,
    pub(crate) isolation: Option<Isolation>,
    refuses_nested: Option<bool>,
    pub(crate) queue: Option<LitInt>,
    pub(crate) handle: Option<Ident>,
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
    given: Vec<(String, Span)>,
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
        self.place(name).is_some()
    }

    /// Where an argument's name stands, if it was given.
    pub(crate) fn place(&self, name: &str) -> Option<Span> {
        let mut given = self.given.iter();
        given.find_map(|(given, span)| (given == name).then_some(*span))
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope.unwrap_or_default()
    }

    pub(crate) fn is_session(&self) -> bool {
        self.scope() == Scope::Session
    }

    pub(crate) fn is_lease(&self) -> bool {
        self.scope() == Scope::Lease
    }

    /// Whether the scope that was meant is unknown, because another word was given.
    pub(crate) fn scope_is_wrong(&self) -> bool {
        self.scope.is_none() && self.has("scope")
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared == Some(true)
    }

    pub(crate) fn refuses_nested(&self) -> bool {
        self.refuses_nested == Some(true)
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
                args.given.push(("key".to_owned(), literal.span()));
                errors.at(literal.span(), format_args!("write `key = {literal}`"));
                continue;
            }
            let Some(name) = name_of(name, known, errors) else {
                continue;
            };
            let word = name.to_string();
            args.given.push((word.clone(), name.span()));
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
            let Some(value) = value_of(&name, equals.as_ref(), tokens.collect(), errors) else {
                continue;
            };
            args.value(&name, value, errors);
        }
        args
    }

    /// Reads what stands behind `name =`.
    fn value(&mut self, name: &Ident, value: TokenStream, errors: &mut Errors) {
        macro_rules! set {
            ($slot:ident, $value:expr) => {{
                let value = $value;
                set(&mut self.$slot, name, value, errors);
            }};
        }
        match name.to_string().as_str() {
            "key" => set!(keys, key(value, errors).map(|key| vec![key])),
            "keys" => set!(keys, keys(value, errors)),
            "scope" => {
                let scopes = Scope::ALL.map(|scope| (scope.name(), scope));
                set!(scope, choice(value, name, scopes, errors));
            }
            "mode" => {
                let modes = [("exclusive", false), ("shared", true)];
                set!(is_shared, choice(value, name, modes, errors));
            }
            "wait" => set!(wait, duration::wait(value, name, errors)),
            "on_held" => set!(on_held, Some(value)),
            "max_hold" => set!(
                max_hold,
                duration::bound(value, name, &duration::MAX_HOLD, errors)
            ),
            "ttl" => set!(ttl, duration::bound(value, name, &duration::TTL, errors)),
            "renew" => set!(
                renew,
                duration::bound(value, name, &duration::RENEW, errors)
            ),
            "keep" => set!(keep, duration::bound(value, name, &duration::KEEP, errors)),
            "pool" => set!(pool, Some(value)),
            "isolation" => {
                let levels = Isolation::ALL.map(|level| (level.name(), level));
                set!(isolation, choice(value, name, levels, errors));
            }
            "nested" => {
                let answers = [("allow", false), ("refuse", true)];
                set!(refuses_nested, choice(value, name, answers, errors));
            }
            "queue" => set!(queue, number(value, name, errors)),
            "handle" => set!(handle, ident(value, name, errors)),
            "conn" => set!(conn, Some(value)),
            "derivation" => {
                let derivations = Derivation::ALL.map(|known| (known.name(), known));
                set!(derivation, choice(value, name, derivations, errors));
            }
            "name" => set!(name, string(value, name, errors)),
            "component" => set!(component, string(value, name, errors)),
            "max_keys" => set!(max_keys, number(value, name, errors)),
            "allow_ambiguous" => set!(allow_ambiguous, reason(value, name, errors)),
            "crate" => set!(krate, Some(value)),
            _ => not_implemented(name, errors),
        }
    }
}

/// Says that an argument is listed as known, and that no code reads it.
pub(crate) fn not_implemented(name: &Ident, errors: &mut Errors) {
    errors.at(name.span(), format_args!("`{name}` is not implemented"));
}

/// The name of an argument, one of `known`.
pub(crate) fn name_of(
    first: Option<TokenTree>,
    known: &[&str],
    errors: &mut Errors,
) -> Option<Ident> {
    let Some(TokenTree::Ident(name)) = first else {
        errors.at(
            span_of(first.as_ref()),
            format_args!("expected an argument: {}", listed(known)),
        );
        return None;
    };
    let word = name.to_string();
    if known.contains(&word.as_str()) {
        return Some(name);
    }
    let hint = advisory_pattern::closest(&word, known.iter().copied()).map_or_else(
        || format!("expected {}", listed(known)),
        |close| format!("did you mean `{close}`?"),
    );
    errors.at(
        name.span(),
        format_args!("unknown argument `{word}`: {hint}"),
    );
    None
}

/// What stands behind `name =`.
pub(crate) fn value_of(
    name: &Ident,
    equals: Option<&TokenTree>,
    value: TokenStream,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let has_equals = equals.is_some_and(|equals| is_punct(equals, '='));
    if !has_equals || value.is_empty() {
        errors.at(name.span(), format_args!("expected `{name} = …`"));
        return None;
    }
    Some(value)
}

/// The only place that can say "given twice".
pub(crate) fn set<T>(slot: &mut Option<T>, name: &Ident, value: Option<T>, errors: &mut Errors) {
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

#[cfg(test)]
mod tests {
    use super::Args;
    use crate::claim_args::ClaimArgs;
    use crate::errors::Errors;
    use proc_macro2::TokenStream;

    /// An argument that is accepted and not read would change no lock, and say nothing.
    #[test]
    fn every_known_argument_is_implemented() {
        let written = |name: &str| -> TokenStream { format!("{name} = \"x\"").parse().unwrap() };
        for name in super::ADVISORY_LOCK {
            let mut errors = Errors::default();
            Args::parse(written(name), &super::ADVISORY_LOCK, &mut errors);
            let errors = errors.into_compile_errors().to_string();
            assert!(!errors.contains("is not implemented"), "{errors}");
        }
        for name in crate::claim_args::CLAIM {
            let mut errors = Errors::default();
            ClaimArgs::parse(written(name), &mut errors);
            let errors = errors.into_compile_errors().to_string();
            assert!(!errors.contains("is not implemented"), "{errors}");
        }
    }
}
