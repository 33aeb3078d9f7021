//! One lock site: what the arguments and the function mean together, checked.

use crate::args::Args;
use crate::check;
use crate::connection::{self, Connection};
use crate::errors::Errors;
use crate::function::Function;
use crate::locked::Locked;
use proc_macro2::TokenStream;
use quote::quote;

pub(crate) struct Site {
    pub(crate) function: Function,
    pub(crate) locked: Locked,
    pub(crate) connection: Connection,
    pub(crate) krate: TokenStream,
}

impl Site {
    /// `None` when a part is missing without which there is nothing to expand; the errors say what is wrong with the rest.
    pub(crate) fn new(
        mut args: Args,
        function: Option<Function>,
        errors: &mut Errors,
    ) -> Option<Self> {
        if let Some(scope) = &args.scope
            && scope.value() != "xact"
        {
            let wanted = format_args!("unknown scope `{}`: expected `\"xact\"`", scope.value());
            errors.at(scope.span(), wanted);
        }
        let locked = Locked::new(&mut args, errors);
        let function = function?;
        check::keys(&locked, &function, errors);
        let connection = connection::find(args.conn, &function, errors)?;
        check::same_connection(&connection, &function, errors);
        let krate = args.krate.unwrap_or_else(|| quote!(::advisory_runtime));
        Some(Self {
            function,
            locked,
            connection,
            krate,
        })
    }
}
