//! The function as it is emitted together with the errors, so that neither its callers nor its body fail too.

use crate::args::key::KeyArg;
use crate::args::{ADVISORY_LOCK, Args};
use crate::errors::Errors;
use crate::function::{self, Form, mentions};
use crate::site::connection::{is_place, names_pool, pool_of, without_borrow};
use crate::tokens::is_word;
use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};

/// The function without a lock. `pool`, `conn = <expression>` and `handle` still bind their names, and a parameter that only the key uses
/// causes no warning.
pub(crate) fn unlocked(args: TokenStream, item: TokenStream) -> TokenStream {
    // The mistakes in it are reported already.
    let mut reported = Errors::default();
    let args = Args::parse(args, &ADVISORY_LOCK, &mut reported);
    let Some((head, body, form)) = parts(&item, &mut reported) else {
        return item;
    };
    let (bindings, body) = (bindings(&args, &body, form), body.stream());
    let body = if form == Form::BoxedFuture {
        quote!(::std::boxed::Box::pin(async move { #bindings #body }))
    } else {
        quote!(#bindings #body)
    };
    quote! {
        #[allow(unused, clippy::all, reason = "the lock of this function has an error")]
        #head { #body }
    }
}

/// What is before the body, the body, and how the function runs; `None` if the item is not a function with a body.
fn parts(item: &TokenStream, reported: &mut Errors) -> Option<(TokenStream, Group, Form)> {
    if let Some(function) = function::parse(item.clone(), reported) {
        return Some((function.head, function.body, function.form));
    }
    let mut tokens: Vec<TokenTree> = item.clone().into_iter().collect();
    let body = match tokens.pop()? {
        TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => body,
        _ => return None,
    };
    let keyword = tokens.iter().position(|token| is_word(token, "fn"))?;
    let mut before = tokens[..keyword].iter();
    let form = if before.any(|token| is_word(token, "async")) {
        Form::Async
    } else {
        Form::Blocking
    };
    Some((tokens.into_iter().collect(), body, form))
}

/// Statements that bind the names that the attribute gives to the body.
fn bindings(args: &Args, body: &Group, form: Form) -> TokenStream {
    let here = Span::mixed_site();
    let mut bindings = TokenStream::new();
    let is_async = form != Form::Blocking;
    if !args.is_lease()
        && let Some((pool, taken)) = connection(args, is_async)
    {
        let name = Ident::new("conn", Span::call_site());
        let result = quote_spanned!(here=>
            ::core::result::Result::<_, ::std::boxed::Box<dyn ::std::error::Error>>::Ok(#taken)
        );
        // Whatever the function returns, `?` is right in it.
        let result = if is_async {
            quote_spanned!(here=> async { #result }.await)
        } else {
            // A closure that is callable only once can return what it borrows mutably.
            quote_spanned!(here=> {
                let once = ::std::string::String::new();
                (|| {
                    ::core::mem::drop(once);
                    #result
                })()
            })
        };
        let borrow = pool
            .as_ref()
            .map(|_| quote_spanned!(here=> let mut #name = &mut #name;));
        bindings.extend(quote_spanned!(here=>
            #pool
            let mut #name = match #result {
                ::core::result::Result::Ok(taken) => taken,
                ::core::result::Result::Err(_) => loop {},
            };
            #borrow
        ));
    }
    if let Some(handle) = &args.handle {
        bindings.extend(handle_binding(args, handle, body, is_async));
    }
    bindings
}

/// A statement that borrows the pool, if there is one, and an expression that gives the connection, with what it lacks; `None` for a
/// place, which has its own name.
fn connection(args: &Args, is_async: bool) -> Option<(Option<TokenStream>, TokenStream)> {
    let given = args.conn.as_ref().or(args.pool.as_ref())?;
    let written: String = given.to_string().split_whitespace().collect();
    let is_connection = args.conn.is_some() || pool_of(&written).is_some();
    if names_pool(given) || !is_connection {
        let is_text = syn::parse2::<Literal>(given.clone()).is_ok();
        let pool = without_borrow(given);
        let here = Span::mixed_site();
        let runtime = args.runtime();
        let taken = if is_async {
            quote_spanned!(here=> #runtime::__private::connection(pool).await?)
        } else {
            quote_spanned!(here=> #runtime::__private::blocking::connection(pool)?)
        };
        return (!is_text).then(|| (Some(quote_spanned!(here=> let pool = &(#pool);)), taken));
    }
    if is_place(&without_borrow(given)) || !is_async && mentions(given, "await") {
        return None;
    }
    let rest = match is_async {
        true if written.ends_with(".get()") => quote!(.await?),
        true if written.ends_with(".get().await") => quote!(?),
        false if written.ends_with(".get()") => quote!(?),
        _ => TokenStream::new(),
    };
    Some((None, quote!(#given #rest)))
}

/// A statement that binds the body's name for the lock.
fn handle_binding(args: &Args, handle: &Ident, body: &Group, is_async: bool) -> TokenStream {
    let here = Span::mixed_site();
    let runtime = args.runtime();
    let private = quote_spanned!(here=> #runtime::__private);
    let acquired = if args.is_lease() {
        quote_spanned!(here=> #runtime::lease::Lease)
    } else if is_async {
        quote_spanned!(here=> #runtime::Acquired)
    } else {
        quote_spanned!(here=> #runtime::blocking::Acquired)
    };
    match args.keys.as_deref() {
        Some([KeyArg::Expression(key)]) if mentions(&body.stream(), "holding") => {
            let key = key.to_token_stream();
            quote_spanned!(here=>
                fn handle<'k, K>(_: &'k K) -> #private::Handle<#acquired, &'k K> {
                    #private::never()
                }
                let declared = #key;
                let #handle = handle(&declared);
            )
        }
        _ => quote_spanned!(here=> let #handle = #private::never::<#acquired>();),
    }
}
