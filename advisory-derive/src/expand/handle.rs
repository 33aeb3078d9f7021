//! The body's handle of the lock, and the declared locks of which it gives witnesses.
//!
//! The keys live as long as the body only where the body can ask for a witness: everywhere else
//! they are dropped before the wait, and the expansion is shorter.

use super::expression::{at_start, typed, with_values};
use crate::site::Site;
use crate::site::keys::SiteKey;
use crate::tokens::hygienic;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote_spanned;

pub(crate) fn handle(site: &Site) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let handle = site.args.handle.as_ref()?;
    if !site.keeps_locks() {
        return Some(hygienic!(let #handle = held.info();));
    }
    let in_shared_mode = site.args.is_shared().then(|| hygienic!(.in_shared_mode()));
    let declared = declared(handle);
    let at = handle.span().resolved_at(here);
    let declared = quote_spanned!(at=> &#declared);
    Some(hygienic!(let #handle = held.handle(#declared) #in_shared_mode;))
}

/// The local that has the declared locks. If a witness is kept beyond the body, the compiler
/// reports at the handle that this local does not live long enough. It calls a local by its name
/// only if the name is not the macro's own.
fn declared(handle: &Ident) -> Ident {
    Ident::new("holding_ends_with_the_body", handle.span())
}

/// Statements that set the local `request` and the local that has its declared locks; `None` where
/// they are not kept.
pub(crate) fn request_and_locks(
    site: &Site,
    private: &TokenStream,
    request: &TokenStream,
) -> Option<TokenStream> {
    let handle = site.args.handle.as_ref().filter(|_| site.keeps_locks())?;
    let (with, declared) = (with_values(&site.keys.with), declared(handle));
    let locks = declared_locks(site, private);
    Some(hygienic!(
        let (request, #declared) = {
            #with
            let declared = #locks;
            ({ #request }, declared)
        };
    ))
}

/// An expression: the declared locks, one, a tuple, or a `Vec`.
fn declared_locks(site: &Site, private: &TokenStream) -> TokenStream {
    let locks = site.keys.list.iter().filter_map(|key| match key {
        SiteKey::Pattern(_) => None,
        SiteKey::Expression(key) => Some(typed(key)),
        SiteKey::Each(keys) => {
            let at = at_start(keys);
            Some(quote_spanned!(at=> #private::Vec::from_iter(#keys)))
        }
    });
    let locks: Vec<TokenStream> = locks.collect();
    match locks.as_slice() {
        [lock] => lock.clone(),
        locks => hygienic!((#(#locks),*)),
    }
}

/// Expressions: each of the declared locks, as a place in the local `declared`.
pub(crate) fn declared_places(site: &Site) -> impl Iterator<Item = TokenStream> {
    let keys = site.keys.list.iter();
    let declared = keys.filter(|key| !matches!(key, SiteKey::Pattern(_)));
    let count = declared.count();
    (0..count).map(move |index| {
        if count == 1 {
            return hygienic!(declared);
        }
        let index = Literal::usize_unsuffixed(index);
        hygienic!(declared.#index)
    })
}
