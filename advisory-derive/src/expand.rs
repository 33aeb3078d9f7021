//! The function that the compiler sees: begin, body, finish, and no logic between them.

use crate::choice::Scope;
use crate::connection::Connection;
use crate::function::Form;
use crate::inferred::inferred;
use crate::lease::leased;
use crate::params::Receiver;
use crate::receiver::renamed;
use crate::request::request;
use crate::site::Site;
use crate::unused;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{Type, spanned::Spanned};

pub(crate) fn expand(site: &Site) -> TokenStream {
    // Locals of the expansion are hygienic: a user's parameter `held` stays theirs.
    let here = Span::mixed_site();
    let private = {
        let krate = &site.krate;
        quote_spanned!(here=> #krate::__private)
    };
    let head = &site.function.head;
    let record = &site.record;
    let output = inferred(&site.function.output);
    let at_output = site.function.output.span().resolved_at(here);
    let converted = quote_spanned!(at_output=> #private::returns::<#output>().convert(error));
    let warning = unused::warning(site);
    let locked = match &site.connection {
        Connection::Pool(pool) => leased(site, pool, &private, &output, &converted),
        Connection::Place { .. } | Connection::Expression(_) => {
            locked(site, &private, &output, &converted)
        }
    };
    let locked = on_held(locked, site, &output, &converted);
    let steps = quote_spanned!(here=> #warning #locked);
    match site.function.form {
        Form::Boxed => {
            quote_spanned!(here=> #head { #record #private::Box::pin(async move { #steps }) })
        }
        Form::Async | Form::Blocking => quote_spanned!(here=> #head { #record #steps }),
    }
}

/// Statements that take the lock, run the body and let the lock go, and the body's result. An error is `converted` and returned where
/// it happens; where there is an `on_held`, one from before the body breaks out of `'held`.
fn locked(
    site: &Site,
    private: &TokenStream,
    output: &Type,
    converted: &TokenStream,
) -> TokenStream {
    let here = Span::mixed_site();
    let Connected {
        take,
        owner,
        place,
        name,
        body,
    } = connected(site);
    let (ok, err) = (
        quote_spanned!(here=> #private::Ok),
        quote_spanned!(here=> #private::Err),
    );
    let refused = if site.args.on_held.is_some() {
        quote_spanned!(here=> break 'held error)
    } else {
        quote_spanned!(here=> return #converted)
    };
    let (calls, wait) = if site.function.is_blocking() {
        (quote_spanned!(here=> #private::blocking), None)
    } else {
        (private.clone(), Some(quote_spanned!(here=> .await)))
    };
    let request = request(site, private, converted);
    // Declared before the connection, so that the next call's turn comes when this one's connection is back in its pool.
    let turn = site.args.queue.as_ref().map(|limit| {
        quote_spanned!(here=>
            let turn = match #calls::queue(&mut request, #limit) #wait {
                #ok(turn) => turn,
                #err(error) => #refused,
            };
        )
    });
    let begin = match site.args.scope() {
        Scope::Session => "acquire_at",
        // A lease has a pool instead of a connection, and so its own steps.
        Scope::Xact | Scope::Lease => "begin_at",
    };
    let begin = Ident::new(begin, here);
    let handle = site
        .args
        .handle
        .as_ref()
        .map(|handle| quote_spanned!(here=> let #handle = held.acquired();));
    // Where the macro warns itself, or where there is nothing to warn of.
    let quiet = unused::is_unused(site).then(|| {
        quote_spanned!(here=> #[allow(unused_variables, reason = "the connection is there for the lock")])
    });
    let (may_be_unused, mutable) = may_be_reborrowed(site)
        .then(|| {
            let reason = "only a body that borrows it once more needs it";
            (
                quote_spanned!(here=> #[allow(unused_mut, reason = #reason)]),
                quote_spanned!(here=> mut),
            )
        })
        .unzip();
    let run = run(site, private, output, &body);
    let exceed = (site.args.max_hold.is_some() && !site.function.is_blocking()).then(|| {
        let option = quote_spanned!(here=> #private::core::option::Option);
        quote_spanned!(here=>
            let result = match result {
                #option::Some(result) => result,
                #option::None => {
                    let error = #private::exceed(held).await;
                    return #converted;
                }
            };
        )
    });
    // In an async function the last call makes the user's error too: a match on what an `await` gives is work for the compiler.
    let finish = if site.function.is_blocking() {
        quote_spanned!(here=>
            match #calls::finish_at(held, result) {
                #ok(result) => result,
                #err(error) => #converted,
            }
        )
    } else {
        let at = output.span().resolved_at(here);
        quote_spanned!(at=> #private::returns::<#output>().finish(held, result).await)
    };
    quote_spanned!(here=>
        #request
        #turn
        #take
        let mut held = match #calls::#begin(#owner, #place, request) #wait {
            #ok(held) => held,
            #err(error) => #refused,
        };
        #handle
        let result = {
            #quiet
            #may_be_unused
            let (running, #mutable #name) = held.run();
            #run
            result
        };
        #exceed
        #finish
    )
}

/// A statement that runs the body, and makes the local `result`.
fn run(site: &Site, private: &TokenStream, output: &Type, body: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    if site.function.is_blocking() {
        // The guard moves into the closure, which can then be called once, and so return what it has borrowed mutably.
        return quote_spanned!(here=>
            let running = running.enter();
            #[allow(clippy::redundant_closure_call, reason = "the body can return early")]
            let result = (|| -> #output {
                let _running = running;
                #body
            })();
        );
    }
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
    let within = if site.args.max_hold.is_some() {
        quote_spanned!(here=> within)
    } else {
        quote_spanned!(here=> watch)
    };
    quote_spanned!(here=> let result = running.#within(#body).await;)
}

/// Returns what the user wants when the lock is not to be had. Only from before the body: afterwards what it says may have
/// moved into the body.
fn on_held(
    locked: TokenStream,
    site: &Site,
    output: &Type,
    converted: &TokenStream,
) -> TokenStream {
    let Some(on_held) = &site.args.on_held else {
        return locked;
    };
    let here = Span::mixed_site();
    let krate = &site.krate;
    quote_spanned!(here=>
        let error = 'held: {
            let result = { #locked };
            return result;
        };
        if #krate::Error::is_busy(&error) {
            let instead: #output = #on_held;
            return instead;
        }
        #converted
    )
}

/// Whether the body may borrow its connection once more. What the function has as `conn: &mut …` it may not.
fn may_be_reborrowed(site: &Site) -> bool {
    let Connection::Place {
        root,
        by: Receiver::Mutable,
        ..
    } = &site.connection
    else {
        return true;
    };
    let mut params = site.function.params.iter();
    root == "self" || params.any(|param| param.is_mut && param.names.contains(root))
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
    // Where the compiler complains about a connection that is none.
    let place = |at: Span| {
        let krate = krate.clone().into_iter().map(|mut token| {
            token.set_span(token.span().located_at(at));
            token
        });
        let krate: TokenStream = krate.collect();
        if site.function.is_blocking() {
            quote_spanned!(at=> #krate::blocking::Connection::place)
        } else {
            quote_spanned!(at=> #krate::Connection::place)
        }
    };
    let body = site.function.body.stream();
    match &site.connection {
        Connection::Expression(expression) | Connection::Pool(expression) => {
            let name = Ident::new("conn", Span::call_site());
            let first = expression.clone().into_iter().next();
            let at = first.map_or(here, |token| token.span().resolved_at(here));
            Connected {
                take: quote_spanned!(here=> let mut taken = #expression;),
                owner: quote_spanned!(at=> &mut taken),
                place: place(at),
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
            let place = place(at);
            let place = if fields.is_empty() {
                place
            } else {
                quote_spanned!(at=> |place| #place(&mut place #fields))
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
