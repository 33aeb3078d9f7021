//! The expansion for a lease: acquire, run the body while the lease is renewed, finish.
//!
//! The lease gives the body no connection, so the body runs with the function's own names.

use super::captures::Captures;
use super::expression::{at_start, typed, with_values};
use super::handle::request_and_locks;
use super::parts::Parts;
use super::request::options;
use super::{function, refusal};
use crate::site::Site;
use crate::site::keys::SiteKey;
use crate::site::lease::LeaseSite;
use crate::tokens::hygienic;
use proc_macro2::TokenStream;
use quote::quote_spanned;

pub(crate) fn expand(lease: &LeaseSite) -> TokenStream {
    let site = &lease.site;
    let captures = Captures::new(site, None);
    let parts = Parts::new(site);
    let steps = lease_steps(lease, &parts, &captures.borrow);
    let mut refusals = refusal(&parts, "is_held", site.args.on_held.as_ref()).unwrap_or_default();
    refusals.extend(refusal(&parts, "is_done", site.args.on_done.as_ref()));
    function(site, captures, &parts, steps, &refusals)
}

fn lease_steps(lease: &LeaseSite, parts: &Parts, borrow: &TokenStream) -> TokenStream {
    let (site, pool) = (&lease.site, &lease.pool);
    let Parts {
        private,
        converted,
        refused,
        handle,
        ..
    } = parts;
    let request = request(site, private);
    // The compiler reports here that a value is not a pool.
    let at = at_start(pool);
    let acquire = quote_spanned!(at=> #private::lease::acquire_at(&(#pool), request).await);
    let body = parts.async_body(borrow, &site.function.body.stream());
    hygienic!(
        #request
        let mut held = match #acquire {
            #private::Ok(held) => held,
            #private::Err(error) => #refused,
        };
        #handle
        let result = match held.run(#body).await {
            #private::Ok(result) => result,
            #private::Err(error) => return #converted,
        };
        match #private::lease::finish_at(held, result).await {
            #private::Ok(result) => result,
            #private::Err(error) => #converted,
        }
    )
}

/// A statement that sets the local `request`, and where the body can ask for a witness also
/// `declared`.
fn request(site: &Site, private: &TokenStream) -> TokenStream {
    let options = options(site, private);
    let declared = hygienic!(#private::lease::Request::new(&declared));
    if let Some(request) = request_and_locks(site, private, &declared) {
        return hygienic!(#request let request = request #options;);
    }
    let key = key(site, private);
    hygienic!(let request = #key #options;)
}

/// An expression: a `Request` for the key's text. The values that compute it are dropped before the
/// wait, so that the future is `Send` whatever their types are.
fn key(site: &Site, private: &TokenStream) -> TokenStream {
    let with = with_values(&site.keys.with);
    match site.keys.list.first() {
        // A lease has no `keys`, so none is `Each`.
        Some(SiteKey::Expression(key) | SiteKey::Each(key)) => {
            let (at, key) = (at_start(key), typed(key));
            quote_spanned!(at=>
                {
                    #with
                    let declared = #key;
                    #private::lease::Request::new(&declared)
                }
            )
        }
        Some(SiteKey::Pattern(pattern)) => {
            let text = pattern.literal.value();
            let names = site.keys.names(&site.function);
            let writes = pattern.writes(&names, &site.args.runtime(), None);
            hygienic!(
                {
                    #with
                    let mut key = #private::KeyWriter::text_only();
                    #writes
                    #private::lease::Request::rendered(#text, key.into_text())
                }
            )
        }
        // `SiteKeys::new` has reported the missing key.
        None => TokenStream::new(),
    }
}
