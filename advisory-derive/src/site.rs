//! One site: what the arguments and the function mean together, checked.

mod check;
pub(crate) mod connection;
pub(crate) mod keys;
pub(crate) mod lease;
pub(crate) mod lock;

use crate::args::Args;
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::function::Function;
use crate::record;
use crate::site_facts::{Kind, SiteFacts, texts};
use keys::SiteKeys;
use proc_macro2::TokenStream;

pub(crate) struct Site {
    pub(crate) attribute: Attribute,
    pub(crate) args: Args,
    pub(crate) function: Function,
    pub(crate) keys: SiteKeys,
    pub(crate) record: TokenStream,
}

impl Site {
    fn new(
        attribute: Attribute,
        args: Args,
        function: Function,
        keys: SiteKeys,
        errors: &mut Errors,
    ) -> Self {
        let facts = SiteFacts {
            kind: match attribute {
                Attribute::Lock => Kind::Lock {
                    scope: args.scope(),
                    is_at: args.at.is_some(),
                },
                Attribute::Lease => Kind::Lease,
            },
            name: function.name.to_string(),
            purpose: record::purpose(&function.head),
            keys: keys.static_keys(&keys.names(&function)),
            with: texts(&keys.with),
        };
        Self {
            record: record::emit(facts, &args, errors),
            attribute,
            args,
            function,
            keys,
        }
    }

    /// Returns whether the declared locks live as long as the body, which can ask for a witness.
    pub(crate) fn keeps_locks(&self) -> bool {
        self.keys.give_witness(&self.args, &self.function)
    }
}
