//! The function that the compiler sees: begin, body, finish, and no logic between them.

use crate::connection::Connection;
use crate::key::{KeyPattern, Names, writer};
use crate::locked::Key;
use crate::params::Receiver;
use crate::receiver::renamed;
use crate::site::Site;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{GenericArgument, LitInt, PathArguments, Type, spanned::Spanned};

pub(crate) fn expand(site: &Site) -> TokenStream {
    // Locals of the expansion are hygienic: a user's parameter `held` stays theirs.
    let here = Span::mixed_site();
    let krate = &site.krate;
    let private = quote_spanned!(here=> #krate::__private);
    let head = &site.function.head;
    let record = &site.record;
    let output = inferred(&site.function.output);
    let at_output = site.function.output.span().resolved_at(here);
    let Connected {
        take,
        owner,
        place,
        name,
        body,
    } = connected(site);
    let keys = keys(site);
    let returns = quote_spanned!(at_output=> #private::returns::<#output>());
    let convert = quote_spanned!(at_output=> {
        #[allow(unused_imports, reason = "which of them is used depends on the error type")]
        use #private::{ConvertBoth as _, ConvertDiesel as _, ConvertNeither as _, ConvertOwn as _};
        (&&&returns).convert(error)
    });
    // The body's statements stand in the async block itself: a block in a block would be the user's `unused_braces`. The
    // return that never runs pins the block's type, so that a mismatch lands on the user's token.
    let body = quote_spanned!(here=>
        async {
            if false {
                return #private::never::<#output>();
            }
            #body
        }
    );
    let steps = quote_spanned! {here=>
        let returns = #returns;
        let error = 'lock: {
            #keys
            #take
            let mut held = match #private::begin_at(#owner, #place, lock, &mut keys).await {
                #private::core::result::Result::Ok(held) => held,
                #private::core::result::Result::Err(error) => break 'lock error,
            };
            let result: #output = {
                #[allow(unused_mut, reason = "only a body that borrows it once more needs it")]
                let mut #name = held.conn();
                let result = #body.await;
                result
            };
            #private::same(&returns, &result);
            match #private::finish_at(held, #private::core::result::Result::is_ok(&result)).await {
                #private::core::result::Result::Ok(()) => return result,
                #private::core::result::Result::Err(error) => break 'lock error,
            }
        };
        #private::core::result::Result::Err(#convert)
    };
    if site.function.is_boxed {
        return quote_spanned!(here=> #head { #record #private::Box::pin(async move { #steps }) });
    }
    quote_spanned!(here=> #head { #record #steps })
}

/// How the body gets at its connection while the guard holds it.
struct Connected {
    /// Statements before the lock.
    take: TokenStream,
    /// What the guard borrows.
    owner: TokenStream,
    /// From there to the connection.
    place: TokenStream,
    /// What the body calls it.
    name: Ident,
    body: TokenStream,
}

fn connected(site: &Site) -> Connected {
    let here = Span::mixed_site();
    let krate = &site.krate;
    let body = site.function.body.stream();
    match &site.connection {
        Connection::Expression(expression) => {
            let name = Ident::new("conn", Span::call_site());
            let first = expression.clone().into_iter().next();
            let at = first.map_or(here, |token| token.span().resolved_at(here));
            Connected {
                take: quote_spanned!(here=> let mut taken = #expression;),
                owner: quote_spanned!(at=> &mut taken),
                place: quote_spanned!(at=> |taken| #krate::Connection::pg(taken)),
                name,
                body,
            }
        }
        Connection::Place { root, fields, by } => {
            let is_self = root == "self";
            let name = if is_self {
                Ident::new("this", here)
            } else {
                root.clone()
            };
            let (take, owner) = match by {
                Receiver::Value => (
                    quote_spanned!(here=> let mut owned = #root;),
                    quote_spanned!(here=> &mut owned),
                ),
                Receiver::MutValue => (TokenStream::new(), quote_spanned!(here=> &mut #root)),
                Receiver::Mutable | Receiver::Shared => {
                    (TokenStream::new(), quote_spanned!(here=> &mut *#root))
                }
            };
            let at = root.span().resolved_at(here);
            let place = if fields.is_empty() {
                quote_spanned!(at=> |place| #krate::Connection::pg(place))
            } else {
                quote_spanned!(at=> |place| #krate::Connection::pg(&mut place #fields))
            };
            let body = if is_self { renamed(body, &name) } else { body };
            Connected {
                take,
                owner,
                place,
                name,
                body,
            }
        }
    }
}

/// Statements that compute the locals `lock`, what errors call it, and `keys`, the numbers.
fn keys(site: &Site) -> TokenStream {
    let here = Span::mixed_site();
    let krate = &site.krate;
    let with = site
        .locked
        .with
        .iter()
        .map(|(name, expression)| quote_spanned!(here=> let #name = #expression;));
    let with = quote_spanned!(here=> #(#with)*);
    if let [Key::Expression(key)] = site.locked.keys.as_slice() {
        // Gone before the wait, so that the future is `Send` whatever the key is made of.
        let at = at_start(key);
        let key = typed(key);
        return quote_spanned!(at=>
            let (lock, mut keys) = {
                #with
                let declared = #key;
                (#krate::LockKey::pattern(&declared), [#krate::LockKey::key(&declared)])
            };
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
        Key::Expression(key) => {
            let at = at_start(key);
            let key = typed(key);
            quote_spanned!(at=> #krate::LockKey::key(&#key))
        }
    };
    if !has_slice {
        let keys = site.locked.keys.iter().map(one);
        return quote_spanned!(here=> let (lock, mut keys) = { #with (#lock, [#(#keys),*]) };);
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
        let lock = #lock;
        let keys = {
            #with
            let mut keys = #krate::__private::Keys::new(lock, #max);
            #(#takes)*
            keys.finish()
        };
        let mut keys = match keys {
            #krate::__private::core::result::Result::Ok(keys) => keys,
            #krate::__private::core::result::Result::Err(error) => {
                break 'lock error;
            }
        };
    )
}

/// A statement that takes a key for each element of the pattern's slice.
fn each(pattern: &KeyPattern, names: &Names<'_>, site: &Site) -> TokenStream {
    let krate = &site.krate;
    let at = pattern.literal.span().resolved_at(Span::mixed_site());
    let Some(slice) = pattern.slice() else {
        return TokenStream::new();
    };
    let (name, path) = (slice.name(), pattern.path(slice, None));
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

/// Where the compiler complains about an expression that is no key.
fn at_start(key: &TokenStream) -> Span {
    let first = key.clone().into_iter().next();
    let span = first.map_or_else(Span::call_site, |token| token.span());
    span.resolved_at(Span::mixed_site())
}

/// A number without a suffix is a `bigint`: left to inference it would be an `i32`, and refused above two billion.
fn typed(key: &TokenStream) -> TokenStream {
    match syn::parse2::<LitInt>(key.clone()) {
        Ok(number) if number.suffix().is_empty() => {
            LitInt::new(&format!("{number}i64"), number.span()).into_token_stream()
        }
        _ => key.clone(),
    }
}

/// The type with `_` for each `impl Trait`, which cannot be written inside the body.
fn inferred(ty: &Type) -> Type {
    let mut ty = ty.clone();
    infer(&mut ty);
    ty
}

fn infer(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => *ty = Type::Verbatim(quote_spanned!(ty.span()=> _)),
        Type::Group(group) => infer(&mut group.elem),
        Type::Paren(paren) => infer(&mut paren.elem),
        Type::Reference(reference) => infer(&mut reference.elem),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(infer),
        Type::Path(path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            infer(ty);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}
