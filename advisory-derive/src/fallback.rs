//! The function as it is emitted together with the errors, so that neither its callers nor its body fail too.

use crate::args::SiteArgs;
use crate::args::call::CallArgs;
use crate::args::key::KeyArg;
use crate::args::{lease, lock};
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::function::{self, Form, mentions};
use crate::site::connection::{is_place, names_pool, pool_of, without_borrow};
use crate::site::lease::body::{NAMES, unbound};
use crate::tokens::is_word;
use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};

/// The function without a lock. `pool`, `conn = <expression>` and `handle` still bind their names, and a parameter that only the key uses
/// causes no warning.
pub(crate) fn unlocked(attribute: Attribute, args: TokenStream, item: TokenStream) -> TokenStream {
    // Its errors have been reported already.
    let mut reported = Errors::default();
    let Some((head, body, form)) = parts(&item, attribute, &mut reported) else {
        return item;
    };
    let bindings = match attribute {
        Attribute::Lock => {
            let (site, call, lock) = lock::parse(args, &mut reported);
            let given = (lock.conn.as_ref(), call.pool.as_ref());
            let mut bindings = connection_binding(&site, given, form);
            let acquired = match form {
                Form::Async | Form::BoxedFuture => quote!(LockInfo),
                Form::Blocking => quote!(blocking::LockInfo),
            };
            let key = match lock.keys.as_deref() {
                Some([key]) => Some(key),
                _ => None,
            };
            bindings.extend(handle_binding(&site, &call, key, &acquired, &body));
            bindings
        }
        Attribute::Lease => {
            let (site, call, lease) = lease::parse(args, &mut reported);
            let acquired = quote!(lease::Lease);
            let mut bindings = handle_binding(&site, &call, lease.key.as_ref(), &acquired, &body);
            if let Some(function) = function::parse(item, attribute, &mut reported) {
                bindings.extend(missing(&site, &call, &function));
            }
            bindings
        }
    };
    let body = body.stream();
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

/// The part before the body, the body, and how the function runs; `None` if the item is not a function with a body.
fn parts(
    item: &TokenStream,
    attribute: Attribute,
    reported: &mut Errors,
) -> Option<(TokenStream, Group, Form)> {
    if let Some(function) = function::parse(item.clone(), attribute, reported) {
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

/// Statements that bind the connection as `conn`, from the `conn` or the `pool` that is given.
fn connection_binding(
    site: &SiteArgs,
    given: (Option<&TokenStream>, Option<&TokenStream>),
    form: Form,
) -> TokenStream {
    let here = Span::mixed_site();
    let is_async = form != Form::Blocking;
    let Some((pool, taken)) = connection(site, given, is_async) else {
        return TokenStream::new();
    };
    let name = Ident::new("conn", Span::call_site());
    let result = quote_spanned!(here=>
        ::core::result::Result::<_, ::std::boxed::Box<dyn ::std::error::Error>>::Ok(#taken)
    );
    // Whatever the function returns, `?` compiles in it.
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
    quote_spanned!(here=>
        #pool
        let mut #name = match #result {
            ::core::result::Result::Ok(taken) => taken,
            ::core::result::Result::Err(_) => loop {},
        };
        #borrow
    )
}

/// Statements that bind the names that a lease's body lacks: their own error is enough.
fn missing(site: &SiteArgs, call: &CallArgs, function: &function::Function) -> TokenStream {
    let here = Span::mixed_site();
    let runtime = site.runtime();
    let body = function.body.stream();
    let bindings = NAMES.iter().filter_map(|word| {
        let at = unbound(&body, word, function, call.handle.as_ref())?;
        let name = Ident::new(word, at);
        Some(if *word == "conn" {
            quote_spanned!(here=>
                let mut #name = #runtime::__private::never::<::diesel_async::AsyncPgConnection>();
                let mut #name = &mut #name;
            )
        } else {
            quote_spanned!(here=> let #name = #runtime::__private::never::<#runtime::lease::Lease>();)
        })
    });
    bindings.collect()
}

/// A statement that borrows the pool, if there is one, and an expression that gives the connection, with what it lacks; `None` for a
/// place, which has its own name.
fn connection(
    args: &SiteArgs,
    (conn, pool): (Option<&TokenStream>, Option<&TokenStream>),
    is_async: bool,
) -> Option<(Option<TokenStream>, TokenStream)> {
    let given = conn.or(pool)?;
    let written: String = given.to_string().split_whitespace().collect();
    let is_connection = conn.is_some() || pool_of(&written).is_some();
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

/// A statement that binds the body's name for the lock, whose type is `acquired`.
fn handle_binding(
    site: &SiteArgs,
    call: &CallArgs,
    key: Option<&KeyArg>,
    acquired: &TokenStream,
    body: &Group,
) -> TokenStream {
    let here = Span::mixed_site();
    let Some(handle) = &call.handle else {
        return TokenStream::new();
    };
    let runtime = site.runtime();
    let private = quote_spanned!(here=> #runtime::__private);
    let acquired = quote_spanned!(here=> #runtime::#acquired);
    match key {
        Some(KeyArg::Expression(key)) if mentions(&body.stream(), "holding") => {
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

#[cfg(test)]
mod tests {
    use super::unlocked;
    use crate::attribute::Attribute;
    use crate::written::joined;

    /// What stands beside the error of an attribute.
    fn beside(attribute: Attribute, args: &str, item: &str) -> String {
        let tokens = |text: &str| text.parse().expect("tokens");
        let unlocked = unlocked(attribute, tokens(args), tokens(item));
        joined(&unlocked).replace("::advisory_runtime::__private::", "")
    }

    #[test]
    fn a_function_keeps_its_form_and_another_item_stays() {
        let allowed =
            "#[allow(unused,clippy::all,reason=\"the lock of this function has an error\")]";
        for (item, wanted) in [
            (
                "async fn run(at: At) -> Done { at }",
                "asyncfnrun(at:At)->Done{at}",
            ),
            ("fn run(at: At) -> Done { at }", "fnrun(at:At)->Done{at}"),
            (
                "fn run(at: At) -> Pin<Box<dyn Future<Output = Done> + Send>> { Box::pin(async move { at }) }",
                "fnrun(at:At)->Pin<Box<dynFuture<Output=Done>+Send>>{::std::boxed::Box::pin(asyncmove{at})}",
            ),
        ] {
            assert_eq!(
                beside(Attribute::Lock, "key = 7", item),
                format!("{allowed}{wanted}")
            );
        }
        // With another error, which the compiler does not have.
        let constant = "const fn run(at: At) -> Done { at }";
        let written = format!("{allowed}constfnrun(at:At)->Done{{at}}");
        assert_eq!(beside(Attribute::Lock, "key = 7", constant), written);
        // Without a body, or not a function.
        for item in [
            "async fn run(at: At) -> Done;",
            "fn run(at: At)",
            "struct At { at: u8 }",
            "",
        ] {
            let given = beside(Attribute::Lock, "key = 7", item);
            assert_eq!(given, joined(&item.parse().expect("tokens")));
        }
    }

    #[test]
    fn a_body_has_the_connection_that_the_arguments_give() {
        for (args, form, taken) in [
            ("pool = self.pool", "async", "connection(pool).await?"),
            ("pool = self.pool", "", "blocking::connection(pool)?"),
            ("conn = self.pool", "async", "connection(pool).await?"),
            ("pool = \"pool\"", "async", ""),
            ("pool = pool.get()", "async", "pool.get().await?"),
            ("pool = pool.get().await?", "async", "pool.get().await?"),
            ("conn = pool.get()", "async", "pool.get().await?"),
            ("conn = pool.get()", "", "pool.get()?"),
            ("conn = pool.get()?", "", "pool.get()?"),
            ("conn = pool.get().await", "async", "pool.get().await?"),
            ("conn = pool.get().await?", "async", "pool.get().await?"),
            ("conn = pool.get().await?", "", ""),
            ("conn = &mut self.conn", "async", ""),
            ("conn = self.conn", "", ""),
        ] {
            let beside = beside(
                Attribute::Lock,
                args,
                &format!("{form} fn run(&self) -> Done {{ send(conn) }}"),
            );
            let bound = beside.split_once("Ok(").map_or("", |(_, rest)| rest);
            let (given, _) = bound.split_once(")}").unwrap_or_default();
            assert_eq!(given, taken, "{args}: {beside}");
            let from_pool = taken.contains("(pool)");
            assert_eq!(
                beside.contains("letpool=&(self.pool);"),
                from_pool,
                "{args}"
            );
            assert_eq!(beside.contains("letmutconn=&mutconn;"), from_pool, "{args}");
            assert_eq!(
                beside.contains("async{::core"),
                !taken.is_empty() && form == "async",
                "{args}"
            );
        }
    }

    #[test]
    fn a_body_has_its_handle() {
        let run = "run(conn: &mut C) -> Done { send(lock";
        for (args, function, wanted) in [
            (
                "key = Slot::of(id)",
                format!("async fn {run}.holding()) }}"),
                "letdeclared=Slot::of(id);letlock=handle(&declared);send",
            ),
            (
                "key = Slot::of(id)",
                format!("async fn {run}) }}"),
                "{letlock=never::<::advisory_runtime::LockInfo>();send",
            ),
            (
                "key = Slot::of(id)",
                format!("fn {run}) }}"),
                "{letlock=never::<::advisory_runtime::blocking::LockInfo>();send",
            ),
            (
                "key = \"<x>\"",
                format!("async fn {run}.holding()) }}"),
                "{letlock=never::<::advisory_runtime::LockInfo>();send",
            ),
            (
                "keys = [Slot::of(id)]",
                format!("async fn {run}.holding()) }}"),
                "letdeclared=Slot::of(id);letlock=handle(&declared);send",
            ),
            (
                "keys = [7, 8]",
                format!("async fn {run}.holding()) }}"),
                "{letlock=never::<::advisory_runtime::LockInfo>();send",
            ),
        ] {
            let beside = beside(
                Attribute::Lock,
                &format!("{args}, handle = lock"),
                &function,
            );
            assert!(beside.contains(wanted), "{args}: {beside}");
        }
        let without = beside(
            Attribute::Lock,
            "key = 7",
            "fn run() -> Done { send(lock) }",
        );
        assert!(!without.contains("letlock"), "{without}");
    }

    #[test]
    fn the_body_of_a_lease_has_the_names_that_it_lacks() {
        let never = "letmutconn=never::<::diesel_async::AsyncPgConnection>();letmutconn=&mutconn;";
        let lease = "letlease=never::<::advisory_runtime::lease::Lease>();";
        for (args, body, wanted) in [
            ("", "query.execute(conn)", never),
            ("", "lease.complete()", lease),
            (", handle = lease", "lease.complete()", lease),
            ("", "send()", ""),
        ] {
            let args = format!("key = 7, pool = pool{args}");
            let beside = beside(
                Attribute::Lease,
                &args,
                &format!("async fn run() -> Done {{ {body} }}"),
            );
            let (_, given) = beside.split_once("Done{").expect("a body");
            assert_eq!(given, format!("{wanted}{body}}}"));
        }
    }
}
