//! The function that the compiler sees: begin, body, finish, and no logic between them.

mod body_connection;
mod captures;
pub(crate) mod expression;
mod handle;
pub(crate) mod lease;
pub(crate) mod lock;
mod parts;
mod rename_self;
mod request;
mod return_type;

use crate::function::Form;
use crate::site::Site;
use crate::tokens::hygienic;
use captures::Captures;
use parts::Parts;
use proc_macro2::{Span, TokenStream};

/// The function with these steps, which acquire the lock, run the body and release the lock. An
/// error is `converted` and returned where it happens. With `refusals`, an error from before the
/// body breaks to `'held`, where they handle it.
fn function(
    site: &Site,
    captures: Captures,
    parts: &Parts,
    steps: TokenStream,
    refusals: &TokenStream,
) -> TokenStream {
    let Parts {
        private, converted, ..
    } = parts;
    let head = if captures.with_mut_self {
        site.function.head_with_mut_self()
    } else {
        site.function.head.clone()
    };
    let (record, rebind) = (&site.record, captures.rebind);
    let steps = if refusals.is_empty() {
        steps
    } else {
        hygienic!(
            let error = 'held: {
                let result = { #steps };
                return result;
            };
            #refusals
            #converted
        )
    };
    match site.function.form {
        Form::BoxedFuture => {
            hygienic!(#head { #record #private::Box::pin(async move { #steps }) })
        }
        Form::Async | Form::Blocking => hygienic!(#head { #record #rebind #steps }),
    }
}

/// The returns of `on_held` and `on_done` for a lock that was not acquired: statements that return
/// the value if the local `error` is of that kind. They run only if the body did not: their
/// expressions can use parameters that the body moves.
fn refusal(parts: &Parts, is_kind: &str, instead: Option<&TokenStream>) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let Parts { error, output, .. } = parts;
    let is_kind = proc_macro2::Ident::new(is_kind, here);
    let instead = instead?;
    Some(hygienic!(
        if #error::#is_kind(&error) {
            let instead: #output = #instead;
            return instead;
        }
    ))
}
