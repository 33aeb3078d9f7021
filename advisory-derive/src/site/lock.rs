//! The site of an advisory lock.

mod check;

use super::Site;
use super::check::{handle, keys, on_held};
use super::connection::{self, Connection};
use super::keys::SiteKeys;
use crate::args::Args;
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::function::Function;
use crate::key_pattern::Ambiguity;
use proc_macro2::Ident;

pub(crate) struct LockSite {
    pub(crate) site: Site,
    pub(crate) connection: Connection,
}

impl LockSite {
    /// `None` if a part is missing that the expansion needs; `errors` also has the mistakes in the
    /// other parts.
    pub(crate) fn new(
        mut args: Args,
        function: Option<Function>,
        errors: &mut Errors,
    ) -> Option<Self> {
        let site_keys = SiteKeys::new(&mut args, errors);
        check::pattern_arguments(&args, &site_keys, errors);
        on_held(&args, errors);
        check::combinations(&args, errors);
        let mut function = function?;
        let is_used = |name: &Ident| site_keys.use_name(name) || args.use_name(name);
        function.use_params(is_used, errors);
        let ambiguity = Ambiguity::unless(args.allow_ambiguous.is_some());
        keys(&site_keys, &function, ambiguity, errors);
        let connection = connection::find(&args, &function, errors)?;
        check::queue(&args, &connection, errors);
        check::permits(&args, &site_keys, &function, errors);
        handle(&args, connection.source().is_some(), &function, errors);
        check::connection_shadowing(&connection, &function, errors);
        check::self_in_text(&connection, &function, errors);
        let site = Site::new(Attribute::Lock, args, function, site_keys, errors);
        Some(Self { site, connection })
    }
}
