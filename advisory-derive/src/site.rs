//! One lock site: what the arguments and the function mean together, checked.

mod check;
mod check_lease;
mod check_permits;
pub(crate) mod connection;
pub(crate) mod keys;

use crate::args::Args;
use crate::collisions;
use crate::errors::Errors;
use crate::function::Function;
use crate::record;
use crate::site_facts::{Kind, SiteFacts, texts};
use connection::Connection;
use keys::SiteKeys;
use proc_macro2::TokenStream;

pub(crate) struct Site {
    pub(crate) args: Args,
    pub(crate) function: Function,
    pub(crate) keys: SiteKeys,
    pub(crate) connection: Connection,
    /// The item that stores the site's record in the program.
    pub(crate) record: TokenStream,
}

impl Site {
    /// `None` if a part is missing that the expansion needs; `errors` also has the mistakes in the other parts.
    pub(crate) fn new(
        mut args: Args,
        function: Option<Function>,
        errors: &mut Errors,
    ) -> Option<Self> {
        let keys = SiteKeys::new(&mut args, errors);
        check::pattern_arguments(&args, &keys, errors);
        check::combinations(&args, errors);
        check_lease::arguments(&args, &keys, errors);
        let mut function = function?;
        function.allow_unused(|name| keys.use_name(name) || args.use_name(name));
        check::keys(&keys, &function, errors);
        check_lease::function(&args, &function, errors);
        let connection = connection::find(&args, &function, errors)?;
        check::queue(&args, &connection, errors);
        check_permits::check(&args, &keys, &function, errors);
        check::handle(&args, &connection, &function, errors);
        check::connection_shadowing(&connection, &function, errors);
        check::self_in_text(&connection, &function, errors);
        let facts = SiteFacts {
            kind: Kind::Function(args.scope()),
            name: function.name.to_string(),
            purpose: record::purpose(&function.head),
            derivation: keys.derivation,
            keys: keys.static_keys(&keys.names(&function)),
            with: texts(&keys.with),
        };
        if errors.is_empty() {
            collisions::check(&facts, &args, errors);
        }
        let record = record::emit(facts, &args);
        Some(Self {
            args,
            function,
            keys,
            connection,
            record,
        })
    }
}
