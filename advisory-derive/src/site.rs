//! One lock site: what the arguments and the function mean together, checked.

use crate::args::Args;
use crate::check;
use crate::check_lease;
use crate::choice::Scope;
use crate::connection::{self, Connection};
use crate::errors::Errors;
use crate::function::Function;
use crate::locked::Locked;
use crate::record::{self, Entry};
use crate::seen;
use proc_macro2::{Span, TokenStream};
use quote::quote;

pub(crate) struct Site {
    pub(crate) args: Args,
    pub(crate) function: Function,
    pub(crate) locked: Locked,
    pub(crate) connection: Connection,
    pub(crate) krate: TokenStream,
    /// What the site leaves in the program.
    pub(crate) record: TokenStream,
}

impl Site {
    /// `None` when a part is missing without which there is nothing to expand; the errors say what is wrong with the rest.
    pub(crate) fn new(
        mut args: Args,
        function: Option<Function>,
        errors: &mut Errors,
    ) -> Option<Self> {
        let locked = Locked::new(&mut args, errors);
        check::idle(&args, &locked, errors);
        check::together(&args, errors);
        check_lease::arguments(&args, &locked, errors);
        let function = function?;
        let sharing = args.sharing();
        check::keys(&locked, &function, errors);
        check_lease::function(&args, &function, errors);
        let connection = match args.scope() {
            Scope::Xact | Scope::Session => connection::find(args.conn.clone(), &function, errors)?,
            Scope::Lease => Connection::Pool(args.pool.clone()?),
        };
        check::queue(&args, &connection, &function, errors);
        check::handle(&args, &connection, &function, errors);
        check::same_connection(&connection, &function, errors);
        check::no_self_in_text(&connection, &function, errors);
        let known = locked.known(&locked.names(&function));
        let word = function.name.to_string();
        if errors.is_empty() {
            let item = format!("fn `{word}`");
            seen::note(
                &known,
                args.scope().key_space(),
                locked.derivation,
                &sharing,
                item,
                Some(&word),
                errors,
            );
        }
        let krate = args
            .krate
            .clone()
            .unwrap_or_else(|| quote!(::advisory_runtime));
        let entry = Entry {
            kind: "fn",
            function: word,
            purpose: record::purpose(&function.head),
            scope: args.scope().name(),
            derivation: locked.derivation,
            span: known
                .first()
                .map_or_else(Span::call_site, |known| known.span),
            keys: known
                .into_iter()
                .map(|known| (known.written, known.key))
                .collect(),
        };
        let record = record::emit(entry, &args, &krate);
        Some(Self {
            args,
            function,
            locked,
            connection,
            krate,
            record,
        })
    }
}
