//! The arguments of `#[advisory_lock]`.

use super::SiteArgs;
use super::argument::{Argument, Known};
use super::call::{CallArgs, uses};
use super::choice::{Isolation, Scope};
use super::duration::{Duration, MAX_HOLD, POLL, POLL_MAX};
use super::key::{KeyArg, key, keys};
use super::value::{AtArg, PermitsArg, at, expression, number, permits, reason, tables};
use crate::attribute::Attribute;
use crate::errors::Errors;
use advisory_pattern::{Derivation, Permits};
use proc_macro2::{Ident, TokenStream};
use syn::{LitInt, LitStr};

/// Every argument. Each is read below, or in `call.rs` or `args.rs` if a lease has it too.
pub(super) const NAMES: [&str; 28] = [
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
    "err",
    "max_hold",
    "isolation",
    "at",
    "nested",
    "queue",
    "handle",
    "pool",
    "conn",
    "derivation",
    "max_keys",
    "allow_ambiguous",
    "name",
    "component",
    "guards",
    "allow_redundant",
    "allow_overlap",
    "crate",
];

/// The maximum number of locks of a call, by default: all sessions of the server share its lock
/// table.
const MAX_KEYS: usize = 64;

#[derive(Default)]
pub(crate) struct LockArgs {
    pub(crate) keys: Option<Vec<KeyArg>>,
    scope: Option<Scope>,
    is_shared: Option<bool>,
    pub(crate) poll: Option<Duration>,
    pub(crate) poll_max: Option<Duration>,
    pub(crate) permits: Option<PermitsArg>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) isolation: Option<Isolation>,
    /// The rows that decide at which node the lock is taken.
    pub(crate) at: Option<AtArg>,
    refuses_nested: Option<bool>,
    pub(crate) queue: Option<LitInt>,
    pub(crate) conn: Option<TokenStream>,
    pub(crate) derivation: Option<Derivation>,
    pub(crate) max_keys: Option<LitInt>,
    pub(crate) allow_ambiguous: Option<LitStr>,
    /// The tables that must only be written under the lock.
    pub(crate) guards: Option<Vec<String>>,
    /// The reason why their constraints do not replace the lock.
    pub(crate) allow_redundant: Option<LitStr>,
}

pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> (SiteArgs, CallArgs, LockArgs) {
    let (mut call, mut lock) = (CallArgs::default(), LockArgs::default());
    let known = Known::of(Attribute::Lock);
    let site = SiteArgs::parse(tokens, known, errors, |argument| {
        lock.read(argument, &mut call);
    });
    site.refuse_redundant_without_guards(errors);
    (site, call, lock)
}

impl LockArgs {
    pub(crate) fn scope(&self) -> Scope {
        self.scope.unwrap_or_default()
    }

    pub(crate) fn is_session(&self) -> bool {
        self.scope() == Scope::Session
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared == Some(true)
    }

    pub(crate) fn refuses_nested(&self) -> bool {
        self.refuses_nested == Some(true)
    }

    pub(crate) fn permits(&self) -> Option<Permits> {
        self.permits.as_ref().map(PermitsArg::recorded)
    }

    pub(crate) fn derivation(&self) -> Derivation {
        self.derivation.unwrap_or(Derivation::Sha256)
    }

    pub(crate) fn max_keys(&self) -> usize {
        let max_keys = self.max_keys.as_ref();
        let max_keys = max_keys.and_then(|max| max.base10_parse().ok());
        max_keys.unwrap_or(MAX_KEYS)
    }

    /// Returns whether the lock uses this name's value for its connection, its permits or its rows.
    pub(crate) fn use_name(&self, name: &Ident) -> bool {
        let is_for_lock = self.is_session() && self.conn.is_none() && name == "conn";
        let permits = self.permits.as_ref().and_then(PermitsArg::expression);
        let value = self.at.as_ref().map(|at| &at.value);
        is_for_lock || uses([self.conn.as_ref(), permits, value], name)
    }

    fn read(&mut self, argument: Argument<'_>, call: &mut CallArgs) {
        match argument.name.to_string().as_str() {
            "key" => argument.set(&mut self.keys, |value, _, errors| {
                key(value, errors).map(|key| vec![key])
            }),
            "keys" => argument.set(&mut self.keys, keys),
            "scope" => {
                let scopes = Scope::ALL.map(|scope| (scope.name(), scope));
                argument.set_choice(&mut self.scope, scopes);
            }
            "mode" => {
                let modes = [("exclusive", false), ("shared", true)];
                argument.set_choice(&mut self.is_shared, modes);
            }
            "poll" => argument.set_time(&mut self.poll, &POLL),
            "poll_max" => argument.set_time(&mut self.poll_max, &POLL_MAX),
            "permits" => argument.set(&mut self.permits, permits),
            "max_hold" => argument.set_time(&mut self.max_hold, &MAX_HOLD),
            "isolation" => {
                let levels = Isolation::ALL.map(|level| (level.name(), level));
                argument.set_choice(&mut self.isolation, levels);
            }
            "at" => argument.set(&mut self.at, at),
            "nested" => {
                let answers = [("allow", false), ("refuse", true)];
                argument.set_choice(&mut self.refuses_nested, answers);
            }
            "queue" => argument.set(&mut self.queue, number),
            "conn" => argument.set(&mut self.conn, expression),
            "derivation" => {
                let derivations = Derivation::ALL.map(|known| (known.name(), known));
                argument.set_choice(&mut self.derivation, derivations);
            }
            "guards" => argument.set(&mut self.guards, tables),
            "max_keys" => argument.set(&mut self.max_keys, number),
            "allow_ambiguous" => argument.set(&mut self.allow_ambiguous, reason),
            "allow_redundant" => argument.set(&mut self.allow_redundant, reason),
            _ => call.read(argument),
        }
    }
}
