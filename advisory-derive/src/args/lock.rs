//! The arguments of `#[advisory_lock]`.

use super::SiteArgs;
use super::argument::{Known, set};
use super::call::{CallArgs, uses};
use super::choice::{Isolation, Scope, choice};
use super::duration::{Duration, MAX_HOLD, POLL, POLL_MAX, bound};
use super::key::{KeyArg, key, keys};
use super::value::{AtArg, PermitsArg, at, number, permits, reason, tables};
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
    /// The rows at whose node the lock is taken.
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
    let site = SiteArgs::parse(tokens, known, errors, |name, value, errors| {
        lock.read(name, value, &mut call, errors);
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

    fn read(&mut self, name: &Ident, value: TokenStream, call: &mut CallArgs, errors: &mut Errors) {
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
            "poll" => set!(poll, bound(value, name, &POLL, errors)),
            "poll_max" => set!(poll_max, bound(value, name, &POLL_MAX, errors)),
            "permits" => set!(permits, permits(value, name, errors)),
            "max_hold" => set!(max_hold, bound(value, name, &MAX_HOLD, errors)),
            "isolation" => {
                let levels = Isolation::ALL.map(|level| (level.name(), level));
                set!(isolation, choice(&value, name, levels, errors));
            }
            "at" => set!(at, at(&value, name, errors)),
            "nested" => {
                let answers = [("allow", false), ("refuse", true)];
                set!(refuses_nested, choice(&value, name, answers, errors));
            }
            "queue" => set!(queue, number(value, name, errors)),
            "conn" => set!(conn, Some(value)),
            "derivation" => {
                let derivations = Derivation::ALL.map(|known| (known.name(), known));
                set!(derivation, choice(&value, name, derivations, errors));
            }
            "guards" => set!(guards, tables(value, name, errors)),
            "max_keys" => set!(max_keys, number(value, name, errors)),
            "allow_ambiguous" => set!(allow_ambiguous, reason(value, name, errors)),
            "allow_redundant" => set!(allow_redundant, reason(value, name, errors)),
            _ => call.read(name, value, errors),
        }
    }
}
