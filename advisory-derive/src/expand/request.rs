//! The request that a site sends to the runtime: its keys, and its options.

use super::expression::{at_start, typed, with_values};
use super::handle::{declared_places, request_and_locks};
use super::parts::Parts;
use crate::args::choice::Isolation;
use crate::args::duration::{Duration, Wait};
use crate::args::value::AtArg;
use crate::key_pattern::names::Names;
use crate::key_pattern::{KeyPattern, writer};
use crate::site::Site;
use crate::site::keys::SiteKey;
use crate::site::lock::LockSite;
use crate::tokens::hygienic;
use advisory_pattern::Permits;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;

/// A statement that sets the local `request`. It returns `converted`, from a local `error`, if the
/// keys are refused.
pub(crate) fn request(lock: &LockSite, parts: &Parts) -> TokenStream {
    let site = &lock.site;
    let keys = keys(lock, parts);
    let options = options(site, &parts.private);
    // The time in the queue is subtracted from the wait.
    let mutable = site.args.queue.as_ref().map(|_| hygienic!(mut));
    if let Some(request) = request_and_locks(site, &parts.private, &keys) {
        return hygienic!(#request let #mutable request = request #options;);
    }
    let with = with_values(&site.keys.with);
    hygienic!(let #mutable request = { #with #keys } #options;)
}

/// Method calls for what differs from the default: an exclusive lock, with the session's own
/// timeout. The function's name is for the checks of debug builds.
pub(crate) fn options(site: &Site, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let args = &site.args;
    let time = |method: &str, time: &Option<Duration>| {
        let (method, time) = (Ident::new(method, here), time.as_ref()?.expression(private));
        Some(hygienic!(.#method(#time)))
    };
    let mut options = TokenStream::new();
    options.extend(time("ttl", &args.ttl));
    options.extend(time("renew", &args.renew));
    options.extend(time("keep", &args.keep));
    let function = site.function.name.to_string();
    options.extend(hygienic!(.in_function(#function)));
    if let Some(wait) = &args.wait {
        let wait = match wait {
            Wait::Never => hygienic!(Never),
            Wait::Forever => hygienic!(Forever),
            Wait::For(time) => {
                let time = time.expression(private);
                hygienic!(For(#time))
            }
        };
        options.extend(hygienic!(.wait(#private::Wait::#wait)));
    }
    if args.is_shared() {
        options.extend(hygienic!(.shared()));
    }
    options.extend(time("poll", &args.poll));
    options.extend(time("poll_max", &args.poll_max));
    match &args.permits {
        Some((Permits::Number(permits), _)) => {
            options.extend(hygienic!(.permits(#permits)));
        }
        Some((Permits::Expression(_), permits)) => {
            // The compiler reports there that it is not an integer.
            let at = at_start(permits);
            let count = quote_spanned!(at=> #private::permits(#permits));
            options.extend(hygienic!(.permits(#count)));
        }
        None => {}
    }
    let isolation = match args.isolation {
        None | Some(Isolation::ReadCommitted) => None,
        Some(Isolation::RepeatableRead) => Some("RepeatableRead"),
        Some(Isolation::Serializable) => Some("Serializable"),
    };
    if let Some(isolation) = isolation {
        let isolation = Ident::new(isolation, here);
        options.extend(hygienic!(.isolation(#private::Isolation::#isolation)));
    }
    if let Some(AtArg { column, value }) = &args.at {
        let at = at_start(value);
        options.extend(quote_spanned!(at=> .at(#column, #value)));
    }
    if args.refuses_nested() {
        options.extend(hygienic!(.refuse_nested()));
    }
    options.extend(time("max_hold", &args.max_hold));
    options
}

/// Statements and an expression: a `Request` for the keys. The values that compute them are dropped
/// before the wait, so that the future is `Send` whatever their types are; except the local
/// `declared`, where the body can ask for its witnesses.
fn keys(lock: &LockSite, parts: &Parts) -> TokenStream {
    let site = &lock.site;
    let (derivation, max) = (site.args.derivation(), site.args.max_keys());
    let Parts {
        private, converted, ..
    } = parts;
    let krate = site.args.runtime();
    let keeps_locks = site.keeps_locks();
    if let [SiteKey::Expression(key)] = site.keys.list.as_slice() {
        let at = at_start(key);
        let key = typed(key);
        let declared = (!keeps_locks).then(|| quote_spanned!(at=> let declared = #key;));
        return quote_spanned!(at=>
            #declared
            #private::request::one(#krate::LockKey::pattern(&declared), #krate::LockKey::key(&declared))
        );
    }
    if let [SiteKey::Each(keys)] = site.keys.list.as_slice() {
        let at = at_start(keys);
        let written = keys.to_string();
        let keys = if keeps_locks {
            quote_spanned!(at=> &declared)
        } else {
            keys.clone()
        };
        return quote_spanned!(at=>
            match #private::request::counted(#keys, #written, #max) {
                #private::core::result::Result::Ok(request) => request,
                #private::core::result::Result::Err(error) => return #converted,
            }
        );
    }
    let declared = keeps_locks.then(|| declared_places(site));
    let mut declared = declared.into_iter().flatten();
    let names = site.keys.names(&site.function);
    let has_slice = site
        .keys
        .patterns()
        .any(|pattern| pattern.slice().is_some());
    let patterns: Vec<String> = site.keys.patterns().map(KeyPattern::text).collect();
    let text = if patterns.len() == site.keys.list.len() {
        patterns.join(", ")
    } else {
        String::new()
    };
    // Each with its pattern, which for a declared lock only its type knows.
    let with_patterns = !has_slice && text.is_empty();
    let mut one = |key: &SiteKey| match key {
        SiteKey::Pattern(pattern) => {
            let key = pattern.expression(&names, derivation, &krate);
            if with_patterns {
                let text = pattern.text();
                hygienic!((#key, #text))
            } else {
                key
            }
        }
        SiteKey::Expression(key) | SiteKey::Each(key) => {
            let at = at_start(key);
            let key = declared.next().unwrap_or_else(|| typed(key));
            if with_patterns {
                quote_spanned!(at=> #private::keyed(&#key))
            } else {
                quote_spanned!(at=> #krate::LockKey::key(&#key))
            }
        }
    };
    if !has_slice {
        let keys = site.keys.list.iter().map(one);
        let keys = hygienic!(#(#keys),*);
        return if with_patterns {
            hygienic!(#private::request::each([#keys]))
        } else if site.keys.list.len() == 1 {
            hygienic!(#private::request::one(#text, #keys))
        } else {
            hygienic!(#private::request::many(#text, [#keys]))
        };
    }
    let takes = site.keys.list.iter().map(|key| match key {
        SiteKey::Pattern(pattern) if pattern.slice().is_some() => each(pattern, &names, lock),
        key => {
            let key = one(key);
            hygienic!(keys.push(#key);)
        }
    });
    hygienic!(
        let mut keys = #private::Keys::new(#text, #max);
        #(#takes)*
        match keys.finish() {
            #private::core::result::Result::Ok(keys) => #private::request::many(#text, keys),
            #private::core::result::Result::Err(error) => return #converted,
        }
    )
}

/// A statement that adds a key for each element of the pattern's slice.
fn each(pattern: &KeyPattern, names: &Names<'_>, lock: &LockSite) -> TokenStream {
    let krate = lock.site.args.runtime();
    let at = pattern.literal.span().resolved_at(Span::mixed_site());
    let Some(slice) = pattern.slice() else {
        return TokenStream::new();
    };
    let (name, path) = (slice.name(), pattern.path(slice, names, None));
    let writes = pattern.writes(names, &krate, None);
    let (new, finish) = (
        writer(lock.site.args.derivation(), &krate),
        pattern.finish(),
    );
    quote_spanned!(at=>
        keys.each(#name, &#path, |element| {
            let mut key = #new;
            #writes
            #finish
        });
    )
}
