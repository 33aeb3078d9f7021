//! The site of a lease.

mod body;
mod check;

use super::Site;
use super::check::{handle, keys, on_held};
use super::keys::SiteKeys;
use crate::args::SiteArgs;
use crate::args::call::CallArgs;
use crate::args::duration::Wait;
use crate::args::lease::LeaseArgs;
use crate::collisions;
use crate::errors::Errors;
use crate::function::Function;
use crate::key_pattern::Ambiguity;
use crate::record;
use crate::site_facts::{Kind, SiteFacts, texts};
use advisory_pattern::{Derivation, Permits, Record};
use proc_macro2::{Ident, TokenStream};

pub(crate) struct LeaseSite {
    pub(crate) site: Site,
    pub(crate) args: LeaseArgs,
    /// Each statement of the lease takes a connection from it; the body gets none.
    pub(crate) pool: TokenStream,
}

impl LeaseSite {
    /// `None` if a part is missing that the expansion needs; `errors` also has the mistakes in the
    /// other parts.
    pub(crate) fn new(
        (mut site, call, mut lease): (SiteArgs, CallArgs, LeaseArgs),
        function: Option<Function>,
        errors: &mut Errors,
    ) -> Option<Self> {
        let key = lease.key.take().map(|key| vec![key]);
        let site_keys = SiteKeys::new(&mut site, key, errors);
        check::slice(&site_keys, errors);
        on_held(&site, &call, errors);
        check::outcomes(&site, errors);
        check::times(&site, &lease, errors);
        let mut function = function?;
        let is_used =
            |name: &Ident| site_keys.use_name(name) || call.use_name(name) || lease.use_name(name);
        function.use_params(is_used, errors);
        keys(&site_keys, &function, Ambiguity::RefusedForLease, errors);
        check::is_async(&function, errors);
        check::pool(&site, &call, &function, errors);
        handle(&call, false, &function, errors);
        body::check(&site, &call, &function, errors);
        let pool = call.pool.clone()?;
        let facts = SiteFacts {
            kind: Kind::Lease,
            name: function.name.to_string(),
            purpose: record::purpose(&function.head),
            // A lease is found by the SHA-256 of its key's text.
            derivation: Derivation::Sha256,
            keys: site_keys.static_keys(&site_keys.names(&function)),
            with: texts(&site_keys.with),
        };
        if errors.is_empty() {
            collisions::check(&facts, &site, &Permits::ONE, errors);
        }
        let own = Record {
            mode: "exclusive".to_owned(),
            wait: call.wait.as_ref().map(Wait::written).map(str::to_owned),
            ttl: record::time(lease.ttl.as_ref()),
            renew: record::time(lease.renew.as_ref()),
            keep: record::time(lease.keep.as_ref()),
            ..Record::default()
        };
        let record = record::emit(facts, own, &site);
        let site = Site {
            args: site,
            call,
            function,
            keys: site_keys,
            record,
        };
        Some(Self {
            site,
            args: lease,
            pool,
        })
    }
}
