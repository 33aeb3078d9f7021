//! The arguments of the attribute, as they are written.

pub(crate) mod argument;
pub(crate) mod choice;
pub(crate) mod duration;
pub(crate) mod key;
pub(crate) mod value;

use crate::errors::Errors;
use crate::function::mentions;
use crate::tokens::{is_punct, split_at_commas};
use advisory_pattern::{Derivation, Permits};
use argument::{name_of, not_implemented, set, value_of};
use choice::{Isolation, Scope, choice};
use duration::{Duration, Wait};
use key::{KeyArg, key, keys, with};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::{LitInt, LitStr};
use value::{
    PermitsArg, conversion, ident, label, number, overlap, permits, reason, returned, string,
    tables,
};

/// The arguments of `#[advisory_lock]`.
pub(crate) const ADVISORY_LOCK: [&str; 30] = [
    "key",
    "keys",
    "with",
    "scope",
    "mode",
    "wait",
    "poll",
    "poll_max",
    "permits",
    "on_held",
    "on_done",
    "err",
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
    "guards",
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
    pub(crate) poll: Option<Duration>,
    pub(crate) poll_max: Option<Duration>,
    pub(crate) permits: Option<PermitsArg>,
    pub(crate) on_held: Option<TokenStream>,
    /// For a lease, as are `ttl`, `renew` and `keep`.
    pub(crate) on_done: Option<TokenStream>,
    /// Converts the lock's error to the function's.
    pub(crate) err: Option<TokenStream>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) renew: Option<Duration>,
    pub(crate) keep: Option<Duration>,
    pub(crate) isolation: Option<Isolation>,
    refuses_nested: Option<bool>,
    pub(crate) queue: Option<LitInt>,
    pub(crate) handle: Option<Ident>,
    pub(crate) conn: Option<TokenStream>,
    pub(crate) pool: Option<TokenStream>,
    pub(crate) derivation: Option<Derivation>,
    pub(crate) max_keys: Option<LitInt>,
    pub(crate) allow_ambiguous: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) component: Option<LitStr>,
    /// The tables whose writes need the lock.
    pub(crate) guards: Option<Vec<String>>,
    /// The other lock's name and the reason, of each `allow_overlap`.
    pub(crate) allow_overlap: Vec<(LitStr, LitStr)>,
    krate: Option<TokenStream>,
    /// Every argument that was given, right or wrong.
    given: Vec<(String, Span)>,
}

impl Args {
    /// The lock's name.
    pub(crate) fn name(&self) -> Option<String> {
        self.name.as_ref().map(LitStr::value)
    }

    /// The names of the locks that this one may overlap.
    pub(crate) fn allowed_overlaps(&self) -> Vec<String> {
        let others = self.allow_overlap.iter();
        others.map(|(other, _)| other.value()).collect()
    }

    /// Whether the lock uses this name's value for anything but its keys.
    pub(crate) fn use_name(&self, name: &Ident) -> bool {
        if self.is_session() && self.conn.is_none() && name == "conn" {
            return true;
        }
        let name = name.to_string();
        let Self {
            on_held,
            on_done,
            err,
            conn,
            pool,
            ..
        } = self;
        let permits = self.permits.as_ref().and_then(PermitsArg::expression);
        let written = [on_held, on_done, err, conn, pool].map(Option::as_ref);
        let mut written = written.into_iter().flatten().chain(permits);
        written.any(|written| mentions(written, &name))
    }

    /// The path of the runtime.
    pub(crate) fn runtime(&self) -> TokenStream {
        runtime(self.krate.as_ref())
    }

    /// How many may hold the lock at once, as the inventory has it.
    pub(crate) fn permits(&self) -> Option<Permits> {
        self.permits.as_ref().map(PermitsArg::recorded)
    }

    /// Refuses arguments that do not fit, each with its message.
    pub(crate) fn refuse(&self, unfit: &[(&str, &str)], errors: &mut Errors) {
        for (name, message) in unfit {
            if let Some(span) = self.span(name) {
                errors.at(span, message);
            }
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.span(name).is_some()
    }

    /// The span of an argument's name, if the argument was given.
    pub(crate) fn span(&self, name: &str) -> Option<Span> {
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

    /// Reads arguments, of which only those of `known` are accepted.
    pub(crate) fn parse(tokens: TokenStream, known: &[&str], errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let arguments = split_at_commas(tokens);
        let pair = key::unnamed_pair(&arguments).filter(|_| known.contains(&"key"));
        for argument in arguments {
            let mut semicolons = argument.clone().into_iter();
            if let Some(semicolon) = semicolons.find(|token| is_punct(token, ';')) {
                errors.at(semicolon.span(), "write `,` between two arguments");
                // What follows it is not read, and could be any argument.
                args.given.push(("key".to_owned(), semicolon.span()));
                continue;
            }
            let mut tokens = argument.into_iter();
            let (name, equals) = (tokens.next(), tokens.next());
            if let Some(TokenTree::Ident(word)) = &name
                && argument::suggestion(&word.to_string()) == Some("key")
            {
                args.given.push(("key".to_owned(), word.span()));
            }
            if let Some(TokenTree::Literal(literal)) = &name
                && known.contains(&"key")
            {
                if let Some(pair) = &pair {
                    if !args.has("key") {
                        errors.at(literal.span(), pair);
                    }
                } else {
                    errors.at(literal.span(), format_args!("write `key = {literal}`"));
                }
                args.given.push(("key".to_owned(), literal.span()));
                continue;
            }
            let value: TokenStream = tokens.collect();
            let Some(name) = name_of(name, &value, known, errors) else {
                continue;
            };
            let word = name.to_string();
            args.given.push((word.clone(), name.span()));
            if word == "with" {
                set(&mut args.with, &name, with(equals, &name, errors), errors);
                continue;
            }
            if word == "allow_overlap" {
                args.allow_overlap
                    .extend(overlap(equals.as_ref(), &name, errors));
                continue;
            }
            let Some(value) = value_of(&name, equals.as_ref(), value, errors) else {
                continue;
            };
            args.value(&name, value, errors);
        }
        args
    }

    /// Reads the value of an argument.
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
                set!(scope, choice(&value, name, scopes, errors));
            }
            "mode" => {
                let modes = [("exclusive", false), ("shared", true)];
                set!(is_shared, choice(&value, name, modes, errors));
            }
            "wait" => set!(wait, duration::wait(value, name, errors)),
            "poll" => set!(poll, duration::bound(value, name, &duration::POLL, errors)),
            "poll_max" => set!(
                poll_max,
                duration::bound(value, name, &duration::POLL_MAX, errors)
            ),
            "permits" => set!(permits, permits(value, name, errors)),
            "on_held" => set!(on_held, returned(value, name, errors)),
            "on_done" => set!(on_done, returned(value, name, errors)),
            "err" => set!(err, conversion(value, errors)),
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
                set!(isolation, choice(&value, name, levels, errors));
            }
            "nested" => {
                let answers = [("allow", false), ("refuse", true)];
                set!(refuses_nested, choice(&value, name, answers, errors));
            }
            "queue" => set!(queue, number(value, name, errors)),
            "handle" => set!(handle, ident(value, name, errors)),
            "conn" => set!(conn, Some(value)),
            "derivation" => {
                let derivations = Derivation::ALL.map(|known| (known.name(), known));
                set!(derivation, choice(&value, name, derivations, errors));
            }
            "name" => set!(name, label(value, name, errors)),
            "component" => set!(component, string(value, name, errors)),
            "guards" => set!(guards, tables(value, name, errors)),
            "max_keys" => set!(max_keys, number(value, name, errors)),
            "allow_ambiguous" => set!(allow_ambiguous, reason(value, name, errors)),
            "crate" => set!(krate, Some(value)),
            _ => not_implemented(name, errors),
        }
    }
}

/// The path of the runtime, if `crate` does not give another one.
pub(crate) fn runtime(krate: Option<&TokenStream>) -> TokenStream {
    krate.cloned().unwrap_or_else(|| quote!(::advisory_runtime))
}

#[cfg(test)]
mod tests {
    use super::{ADVISORY_LOCK, Args};
    use crate::errors::Errors;

    /// An argument that is accepted but not read would have no effect and give no error.
    #[test]
    fn every_known_argument_is_implemented() {
        for name in ADVISORY_LOCK {
            let mut errors = Errors::default();
            let written = format!("{name} = \"x\"").parse().expect("tokens");
            Args::parse(written, &ADVISORY_LOCK, &mut errors);
            let errors = errors.into_compile_errors().to_string();
            assert!(!errors.contains("is not implemented"), "{errors}");
        }
    }
}
