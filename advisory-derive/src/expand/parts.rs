//! Tokens that the expansions of a lock and of a lease share.

use super::handle::handle;
use super::return_type::replace_impl_trait;
use crate::attribute::Attribute;
use crate::site::Site;
use crate::tokens::hygienic;
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{Type, spanned::Spanned};

pub(crate) struct Parts {
    pub(crate) private: TokenStream,
    /// The module of the functions for this kind of connection.
    pub(crate) calls: TokenStream,
    /// The `.await` of a call of them.
    pub(crate) wait: Option<TokenStream>,
    pub(crate) output: Type,
    /// An expression: the local `error` as the function's result.
    pub(crate) converted: TokenStream,
    pub(crate) error: TokenStream,
    /// Handles the local `error` of a lock that was not acquired: returns it, or breaks out of
    /// `'held` if there is an `on_held` or an `on_done`.
    pub(crate) refused: TokenStream,
    /// A statement that binds the body's name for the lock.
    pub(crate) handle: Option<TokenStream>,
}

impl Parts {
    pub(crate) fn new(site: &Site) -> Self {
        let here = Span::mixed_site();
        let krate = site.args.runtime();
        let private = hygienic!(#krate::__private);
        let mut output = site.function.output.clone();
        replace_impl_trait(&mut output);
        let at_output = site.function.output.span().resolved_at(here);
        let module = match site.attribute {
            Attribute::Lock => None,
            Attribute::Lease => Some(hygienic!(lease::)),
        };
        let returns = quote_spanned!(at_output=> #private::#module returns::<#output>());
        let converted = if let Some(err) = &site.args.err {
            quote_spanned!(at_output=> #returns.convert_by(error, #err))
        } else {
            quote_spanned!(at_output=> #returns.convert(error))
        };
        let (calls, wait) = if site.function.is_blocking() {
            (hygienic!(#private::blocking), None)
        } else {
            (private.clone(), Some(hygienic!(.await)))
        };
        Self {
            calls,
            wait,
            error: hygienic!(#krate::#module Error),
            refused: if site.args.on_held.is_some() || site.args.on_done.is_some() {
                hygienic!(break 'held error)
            } else {
                hygienic!(return #converted)
            },
            handle: handle(site),
            private,
            output,
            converted,
        }
    }

    /// The body as an async block, which captures as `borrow` says.
    ///
    /// The body's statements are in the block itself: a nested block would trigger `unused_braces`.
    /// The return that never runs fixes the block's type, so that the compiler reports a mismatch
    /// at the user's token.
    pub(crate) fn async_body(&self, borrow: &TokenStream, body: &TokenStream) -> TokenStream {
        let Self {
            private, output, ..
        } = self;
        hygienic!(
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
