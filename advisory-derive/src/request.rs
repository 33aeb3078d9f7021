//! What a site asks the runtime for: its keys, and how they are to be taken.

use crate::choice::Isolation;
use crate::duration::Wait;
use crate::key::{KeyPattern, Names, writer};
use crate::locked::Key;
use crate::site::Site;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::LitInt;

/// A statement that makes the local `request`. It returns `converted`, from a local `error`, where the keys are refused.
pub(crate) fn request(site: &Site, private: &TokenStream, converted: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let keys = keys(site, private, converted);
    let terms = terms(site, private);
    // What waits in a queue counts against the wait.
    let mutable = site.args.queue.as_ref().map(|_| quote_spanned!(here=> mut));
    quote_spanned!(here=> let #mutable request = #keys #terms;)
}

/// Method calls for what differs from an exclusive lock that is waited for as the session says.
pub(crate) fn terms(site: &Site, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let args = &site.args;
    let mut terms = TokenStream::new();
    if args.is_shared() {
        terms.extend(quote_spanned!(here=> .shared()));
    }
    if let Some(wait) = &args.wait {
        let wait = match wait {
            Wait::Never => quote_spanned!(here=> #private::Wait::Never),
            Wait::Forever => quote_spanned!(here=> #private::Wait::Forever),
            Wait::For(time) => {
                let time = time.expression(private);
                quote_spanned!(here=> #private::Wait::For(#time))
            }
        };
        terms.extend(quote_spanned!(here=> .wait(#wait)));
    }
    let isolation = match args.isolation {
        None | Some(Isolation::ReadCommitted) => None,
        Some(Isolation::RepeatableRead) => Some("RepeatableRead"),
        Some(Isolation::Serializable) => Some("Serializable"),
    };
    if let Some(isolation) = isolation {
        let isolation = Ident::new(isolation, here);
        terms.extend(quote_spanned!(here=> .isolation(#private::Isolation::#isolation)));
    }
    if args.refuses_nested() {
        terms.extend(quote_spanned!(here=> .refuse_nested()));
    }
    if let Some(bound) = &args.max_hold {
        let bound = bound.expression(private);
        terms.extend(quote_spanned!(here=> .max_hold(#bound)));
    }
    terms
}

/// Statements that compute what `with` names.
pub(crate) fn with(site: &Site) -> TokenStream {
    let here = Span::mixed_site();
    let with = site
        .locked
        .with
        .iter()
        .map(|(name, expression)| quote_spanned!(here=> let #name = #expression;));
    quote_spanned!(here=> #(#with)*)
}

/// An expression: a `Request` for the keys. What computes them is gone before the wait, so that the future is `Send` whatever
/// they are made of.
fn keys(site: &Site, private: &TokenStream, converted: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let krate = &site.krate;
    let with = with(site);
    if let [Key::Expression(key)] = site.locked.keys.as_slice() {
        let at = at_start(key);
        let key = typed(key);
        return quote_spanned!(at=>
            {
                #with
                let declared = #key;
                #private::Request::one(#krate::LockKey::pattern(&declared), #krate::LockKey::key(&declared))
            }
        );
    }
    if let [Key::Each(keys)] = site.locked.keys.as_slice() {
        let (at, max) = (at_start(keys), site.locked.max_keys);
        let written = keys.to_string();
        return quote_spanned!(at=>
            {
                #with
                match #private::Request::counted(#keys, #written, #max) {
                    #private::core::result::Result::Ok(request) => request,
                    #private::core::result::Result::Err(error) => return #converted,
                }
            }
        );
    }
    let names = site.locked.names(&site.function);
    let has_slice = site
        .locked
        .patterns()
        .any(|pattern| pattern.slice().is_some());
    let patterns: Vec<String> = site
        .locked
        .patterns()
        .map(|pattern| pattern.literal.value())
        .collect();
    let lock = if patterns.len() == site.locked.keys.len() {
        patterns.join(", ")
    } else {
        String::new()
    };
    let one = |key: &Key| match key {
        Key::Pattern(pattern) => pattern.expression(&names, site.locked.derivation, krate),
        Key::Expression(key) | Key::Each(key) => {
            let at = at_start(key);
            let key = typed(key);
            quote_spanned!(at=> #krate::LockKey::key(&#key))
        }
    };
    let is_mixed = site.locked.keys.len() > 1 && lock.is_empty();
    if !has_slice && is_mixed {
        // Each with its pattern, which only a declared lock itself knows.
        let keys = site.locked.keys.iter().map(|key| match key {
            Key::Pattern(pattern) => {
                let (text, key) = (pattern.literal.value(), one(key));
                quote_spanned!(here=> (#key, #text))
            }
            Key::Expression(key) | Key::Each(key) => {
                let at = at_start(key);
                let key = typed(key);
                quote_spanned!(at=> #private::keyed(&#key))
            }
        });
        return quote_spanned!(here=> { #with #private::Request::each([#(#keys),*]) });
    }
    if !has_slice {
        let keys = site.locked.keys.iter().map(one);
        let keys = quote_spanned!(here=> #(#keys),*);
        return if site.locked.keys.len() == 1 {
            quote_spanned!(here=> { #with #private::Request::one(#lock, #keys) })
        } else {
            quote_spanned!(here=> { #with #private::Request::many(#lock, [#keys]) })
        };
    }
    let max = site.locked.max_keys;
    let takes = site.locked.keys.iter().map(|key| match key {
        Key::Pattern(pattern) if pattern.slice().is_some() => each(pattern, &names, site),
        key => {
            let key = one(key);
            quote_spanned!(here=> keys.push(#key);)
        }
    });
    quote_spanned!(here=>
        {
            #with
            let mut keys = #private::Keys::new(#lock, #max);
            #(#takes)*
            match keys.finish() {
                #private::core::result::Result::Ok(keys) => #private::Request::many(#lock, keys),
                #private::core::result::Result::Err(error) => return #converted,
            }
        }
    )
}

/// A statement that takes a key for each element of the pattern's slice.
fn each(pattern: &KeyPattern, names: &Names<'_>, site: &Site) -> TokenStream {
    let krate = &site.krate;
    let at = pattern.literal.span().resolved_at(Span::mixed_site());
    let Some(slice) = pattern.slice() else {
        return TokenStream::new();
    };
    let (name, path) = (slice.name(), pattern.path(slice, names, None));
    let writes = pattern.writes(names, krate, None);
    let new = writer(site.locked.derivation, krate);
    quote_spanned!(at=>
        keys.each(#name, &#path, |element| {
            let mut key = #new;
            #writes
            key.finish()
        });
    )
}

/// Where the compiler complains about an expression that is not what it has to be, such as a key.
pub(crate) fn at_start(key: &TokenStream) -> Span {
    let first = key.clone().into_iter().next();
    let span = first.map_or_else(Span::call_site, |token| token.span());
    span.resolved_at(Span::mixed_site())
}

/// A number without a suffix is a `bigint`: left to inference it would be an `i32`, and refused above two billion.
pub(crate) fn typed(key: &TokenStream) -> TokenStream {
    match syn::parse2::<LitInt>(key.clone()) {
        Ok(number) if number.suffix().is_empty() => {
            LitInt::new(&format!("{number}i64"), number.span()).into_token_stream()
        }
        _ => key.clone(),
    }
}
