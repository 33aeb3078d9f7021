//! The site of an advisory lock.

mod check;
mod permits;

use super::Site;
use super::check::{handle, keys, on_held};
use super::connection::{self, Connection};
use super::keys::SiteKeys;
use crate::args::SiteArgs;
use crate::args::call::CallArgs;
use crate::args::duration::Wait;
use crate::args::lock::LockArgs;
use crate::collisions;
use crate::errors::Errors;
use crate::function::Function;
use crate::key_pattern::Ambiguity;
use crate::record;
use crate::site_facts::{Kind, SiteFacts, texts};
use advisory_pattern::{Permits, Record};
use proc_macro2::Ident;
use syn::LitStr;

pub(crate) struct LockSite {
    pub(crate) site: Site,
    pub(crate) args: LockArgs,
    pub(crate) connection: Connection,
}

impl LockSite {
    /// `None` if a part is missing that the expansion needs; `errors` also has the mistakes in the
    /// other parts.
    pub(crate) fn new(
        (mut site, call, mut lock): (SiteArgs, CallArgs, LockArgs),
        function: Option<Function>,
        errors: &mut Errors,
    ) -> Option<Self> {
        let site_keys = SiteKeys::new(&mut site, lock.keys.take(), errors);
        check::pattern_arguments(&site, &lock, &site_keys, errors);
        on_held(&site, &call, errors);
        check::combinations(&site, &call, &lock, errors);
        let mut function = function?;
        let is_used =
            |name: &Ident| site_keys.use_name(name) || call.use_name(name) || lock.use_name(name);
        function.use_params(is_used, errors);
        let ambiguity = Ambiguity::unless(lock.allow_ambiguous.is_some());
        keys(&site_keys, &function, ambiguity, errors);
        let connection = connection::find(&site, &call, &lock, &function, errors)?;
        check::queue(&site, &connection, errors);
        permits::check(&site, &call, &lock, &site_keys, &function, errors);
        handle(&call, connection.source().is_some(), &function, errors);
        check::connection_shadowing(&connection, &function, errors);
        check::self_in_text(&connection, &function, errors);
        let facts = SiteFacts {
            kind: Kind::Lock {
                scope: lock.scope(),
                is_at: lock.at.is_some(),
            },
            name: function.name.to_string(),
            purpose: record::purpose(&function.head),
            derivation: lock.derivation(),
            keys: site_keys.static_keys(&site_keys.names(&function)),
            with: texts(&site_keys.with),
        };
        if errors.is_empty() {
            collisions::check(
                &facts,
                &site,
                &lock.permits().unwrap_or(Permits::ONE),
                errors,
            );
        }
        let record = record::emit(facts, own(&call, &lock), &site);
        let site = Site {
            args: site,
            call,
            function,
            keys: site_keys,
            record,
        };
        Some(Self {
            site,
            args: lock,
            connection,
        })
    }
}

fn own(call: &CallArgs, lock: &LockArgs) -> Record {
    let mode = if lock.is_shared() {
        "shared"
    } else {
        "exclusive"
    };
    Record {
        mode: mode.to_owned(),
        wait: call.wait.as_ref().map(Wait::written).map(str::to_owned),
        poll: record::time(lock.poll.as_ref()),
        permits: lock.permits(),
        max_hold: record::time(lock.max_hold.as_ref()),
        isolation: lock.isolation.map(|level| level.name().to_owned()),
        guards: lock.guards.clone().unwrap_or_default(),
        allow_ambiguous: lock.allow_ambiguous.as_ref().map(LitStr::value),
        allow_redundant: lock.allow_redundant.as_ref().map(LitStr::value),
        ..Record::default()
    }
}
