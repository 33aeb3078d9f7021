//! The site of a lease.

mod body;
mod check;

use super::Site;
use super::check::{handle, keys, on_held};
use super::keys::SiteKeys;
use crate::args::Args;
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::function::Function;
use crate::key_pattern::Ambiguity;
use proc_macro2::{Ident, TokenStream};

pub(crate) struct LeaseSite {
    pub(crate) site: Site,
    /// Each statement of the lease takes a connection from it; the body gets none.
    pub(crate) pool: TokenStream,
}

impl LeaseSite {
    /// `None` if a part is missing that the expansion needs; `errors` also has the mistakes in the
    /// other parts.
    pub(crate) fn new(
        mut args: Args,
        function: Option<Function>,
        errors: &mut Errors,
    ) -> Option<Self> {
        let site_keys = SiteKeys::new(&mut args, errors);
        for pattern in site_keys.patterns() {
            pattern.refuse_slice("several leases: name a single value", errors);
        }
        on_held(&args, errors);
        check::outcomes(&args, errors);
        check::times(&args, errors);
        let mut function = function?;
        let is_used = |name: &Ident| site_keys.use_name(name) || args.use_name(name);
        function.use_params(is_used, errors);
        keys(&site_keys, &function, Ambiguity::RefusedForLease, errors);
        check::is_async(&function, errors);
        check::pool(&args, &function, errors);
        handle(&args, false, &function, errors);
        body::check(&args, &function, errors);
        let pool = args.pool.clone()?;
        let site = Site::new(Attribute::Lease, args, function, site_keys, errors);
        Some(Self { site, pool })
    }
}
