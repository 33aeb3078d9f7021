//! The steps of a lease: acquire, run the body beside its renewal, finish, and no logic between them.
//!
//! The body has no connection of the lease's: it runs in the function's own scope, with the user's own names.

use crate::locked::Key;
use crate::request::{at_start, terms, typed, with};
use crate::site::Site;
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Type;

/// Statements that acquire the lease, run the body and let the lease go, and the body's result. As those of a lock they return an
/// error `converted`, or break out of `'held` with one from before the body.
pub(crate) fn leased(
    site: &Site,
    pool: &TokenStream,
    private: &TokenStream,
    output: &Type,
    converted: &TokenStream,
) -> TokenStream {
    let here = Span::mixed_site();
    let (ok, err) = (
        quote_spanned!(here=> #private::Ok),
        quote_spanned!(here=> #private::Err),
    );
    let refused = if site.args.on_held.is_some() {
        quote_spanned!(here=> break 'held error)
    } else {
        quote_spanned!(here=> return #converted)
    };
    let key = key(site, private);
    let (times, terms) = (times(site, private), terms(site, private));
    let handle = site.args.handle.as_ref();
    let handle = handle.map(|handle| quote_spanned!(here=> let #handle = held.acquired();));
    // Where the compiler complains about a pool that is none.
    let at = at_start(pool);
    let acquire = quote_spanned!(at=> #private::lease::acquire_at(&(#pool), request).await);
    // The return that never runs pins the block's type, so that a mismatch lands on the user's token.
    let body = site.function.body.stream();
    let body = quote_spanned!(here=>
        async {
            if false {
                return #private::never::<#output>();
            }
            #body
        }
    );
    quote_spanned!(here=>
        let request = #key #times #terms;
        let mut held = match #acquire {
            #ok(held) => held,
            #err(error) => #refused,
        };
        #handle
        let result = match held.run(#body).await {
            #ok(result) => result,
            #err(error) => return #converted,
        };
        match #private::lease::finish_at(held, result).await {
            #ok(result) => result,
            #err(error) => #converted,
        }
    )
}

/// An expression: a `Request` for the key's text. What computes it is gone before the wait, so that the future is `Send`
/// whatever it is made of.
fn key(site: &Site, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let with = with(site);
    match site.locked.keys.first() {
        // `Each` is of `keys`, which is refused.
        Some(Key::Expression(key) | Key::Each(key)) => {
            let (at, key) = (at_start(key), typed(key));
            quote_spanned!(at=>
                {
                    #with
                    let declared = #key;
                    #private::lease::Request::declared(&declared)
                }
            )
        }
        Some(Key::Pattern(pattern)) => {
            let text = pattern.literal.value();
            let names = site.locked.names(&site.function);
            let writes = pattern.writes(&names, &site.krate, None);
            quote_spanned!(here=>
                {
                    #with
                    let mut key = #private::KeyWriter::text_only();
                    #writes
                    #private::lease::Request::rendered(#text, key.into_text())
                }
            )
        }
        // `Locked::new` has complained.
        None => TokenStream::new(),
    }
}

/// Method calls for the lease's own times, where they are given.
fn times(site: &Site, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let mut times = TokenStream::new();
    if let Some(ttl) = &site.args.ttl {
        let ttl = ttl.expression(private);
        times.extend(quote_spanned!(here=> .ttl(#ttl)));
    }
    if let Some(renew) = &site.args.renew {
        let renew = renew.expression(private);
        times.extend(quote_spanned!(here=> .renew(#renew)));
    }
    if let Some(keep) = &site.args.keep {
        let keep = keep.expression(private);
        times.extend(quote_spanned!(here=> .keep(#keep)));
    }
    times
}
