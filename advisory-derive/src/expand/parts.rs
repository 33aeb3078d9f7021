//! Tokens that the expansions of a lock and of a lease share.

use super::handle::handle;
use super::return_type::without_impl_trait;
use crate::site::Site;
use crate::site::connection::Connection;
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{Type, spanned::Spanned};

pub(crate) struct Parts {
    /// The path of the runtime's hidden module.
    pub(crate) private: TokenStream,
    pub(crate) output: Type,
    /// An expression: the local `error` as the function's result.
    pub(crate) converted: TokenStream,
    /// The path of the type of `error`.
    pub(crate) error: TokenStream,
    pub(crate) ok: TokenStream,
    pub(crate) err: TokenStream,
    /// Leaves the function with the local `error` from before the body: to `on_held` or `on_done`, if there is one.
    pub(crate) refused: TokenStream,
    /// A statement that binds the body's name for the lock.
    pub(crate) handle: Option<TokenStream>,
    /// See [`Captures`](super::captures::Captures).
    borrow: TokenStream,
}

impl Parts {
    pub(crate) fn new(site: &Site, borrow: TokenStream) -> Self {
        let here = Span::mixed_site();
        let krate = site.args.runtime();
        let private = quote_spanned!(here=> #krate::__private);
        let output = without_impl_trait(&site.function.output);
        let at_output = site.function.output.span().resolved_at(here);
        let is_lease = matches!(site.connection, Connection::Lease(_));
        let product = is_lease.then(|| quote_spanned!(here=> lease::));
        let returns = quote_spanned!(at_output=> #private::#product returns::<#output>());
        let converted = if let Some(err) = &site.args.err {
            quote_spanned!(at_output=> #returns.convert_by(error, #err))
        } else {
            quote_spanned!(at_output=> #returns.convert(error))
        };
        Self {
            error: quote_spanned!(here=> #krate::#product Error),
            ok: quote_spanned!(here=> #private::Ok),
            err: quote_spanned!(here=> #private::Err),
            refused: if site.args.on_held.is_some() || site.args.on_done.is_some() {
                quote_spanned!(here=> break 'held error)
            } else {
                quote_spanned!(here=> return #converted)
            },
            handle: handle(site),
            borrow,
            private,
            output,
            converted,
        }
    }

    /// The body as an async block.
    ///
    /// The body's statements are in the block itself: a nested block would trigger `unused_braces`. The return that never runs fixes
    /// the block's type, so that the compiler reports a mismatch at the user's token.
    pub(crate) fn async_body(&self, body: &TokenStream) -> TokenStream {
        let Self {
            private,
            output,
            borrow,
            ..
        } = self;
        quote_spanned!(Span::mixed_site()=>
            async {
                if false {
                    #borrow
                    return #private::never::<#output>();
                }
                #body
            }
        )
    }
}
