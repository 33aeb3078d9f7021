//! The function that the compiler sees: begin, body, finish, and no logic between them.

mod body_connection;
mod captures;
mod expression;
mod handle;
mod lease;
mod parts;
mod rename_self;
mod request;
mod return_type;

use crate::args::Args;
use crate::args::choice::Scope;
use crate::function::Form;
use crate::function::params::Receiver;
use crate::site::Site;
use crate::site::connection::Connection;
use body_connection::{BodyConnection, body_connection};
use captures::Captures;
use lease::lease_steps;
use parts::Parts;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use request::request;
use syn::spanned::Spanned;

pub(crate) fn expand(site: &Site) -> TokenStream {
    // Locals of the expansion are hygienic: a user's parameter `held` stays theirs.
    let here = Span::mixed_site();
    let captures = Captures::new(site);
    let parts = Parts::new(site, captures.borrow);
    let private = &parts.private;
    let head = if captures.with_mut_self {
        site.function.head_with_mut_self()
    } else {
        site.function.head.clone()
    };
    let rebind = captures.rebind;
    let record = &site.record;
    let steps = match &site.connection {
        Connection::Lease(pool) => lease_steps(site, pool, &parts),
        Connection::Place { .. } | Connection::Expression(_) | Connection::Pool(_) => {
            lock_steps(site, &parts)
        }
    };
    let steps = with_refusals(steps, site, &parts);
    match site.function.form {
        Form::BoxedFuture => {
            quote_spanned!(here=> #head { #record #private::Box::pin(async move { #steps }) })
        }
        Form::Async | Form::Blocking => quote_spanned!(here=> #head { #record #rebind #steps }),
    }
}

/// Statements that acquire the lock, run the body and release the lock, and the body's result. An error is `converted` and returned
/// where it happens; with `on_held`, one from before the body breaks out of `'held` instead.
fn lock_steps(site: &Site, parts: &Parts) -> TokenStream {
    let here = Span::mixed_site();
    let Parts {
        private,
        output,
        converted,
        ok,
        err,
        refused,
        handle,
        ..
    } = parts;
    let connection = body_connection(site, parts);
    let BodyConnection { name, body, .. } = &connection;
    let (calls, wait) = if site.function.is_blocking() {
        (quote_spanned!(here=> #private::blocking), None)
    } else {
        (private.clone(), Some(quote_spanned!(here=> .await)))
    };
    let request = request(site, parts);
    // Declared before the connection, so that it is dropped after it: the next call then finds the connection back in its pool.
    let turn = site.args.queue.as_ref().map(|limit| {
        quote_spanned!(here=>
            let turn = match #calls::queue(&mut request, #limit) #wait {
                #ok(turn) => turn,
                #err(error) => #refused,
            };
        )
    });
    let begin = match &site.connection {
        Connection::Expression(_) | Connection::Pool(_) if site.args.poll.is_some() => {
            poll(site, parts, &connection, &calls, wait.as_ref())
        }
        _ => begin(site, parts, &connection, &calls, wait.as_ref()),
    };
    // A transaction-level lock protects statements on its connection alone, so there the compiler's warning about an unused connection
    // is right. A session-level lock also protects work on other connections, or on none.
    let quiet = site.args.is_session().then(|| {
        quote_spanned!(here=> #[allow(unused_variables, reason = "the connection is there for the lock")])
    });
    let (may_be_unused, mutable) = may_be_reborrowed(site)
        .then(|| {
            let reason = "only a body that borrows it once more needs it";
            (
                quote_spanned!(here=> #[allow(unused_mut, reason = #reason)]),
                // With another span the compiler would take the connection for a variable of the macro's own, and never report it.
                quote_spanned!(name.span()=> mut),
            )
        })
        .unzip();
    let run = run(site, parts, body);
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
    // In an async function the last call also converts the error: a match on the result of an `await` is slow to compile. But the
    // conversion of `err` can borrow parameters, and must not do so while the call waits.
    let finish = if site.function.is_blocking() || site.args.err.is_some() {
        quote_spanned!(here=>
            match #calls::finish_at(held, result) #wait {
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
        #begin
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

/// Statements that take the connection and the lock, as the local `held`.
fn begin(
    site: &Site,
    parts: &Parts,
    connection: &BodyConnection,
    calls: &TokenStream,
    wait: Option<&TokenStream>,
) -> TokenStream {
    let here = Span::mixed_site();
    let Parts {
        ok, err, refused, ..
    } = parts;
    let BodyConnection {
        take, owner, place, ..
    } = connection;
    let begin = match site.args.scope() {
        Scope::Session => "acquire_at",
        // A lease has a pool instead of a connection, and so its own steps.
        Scope::Xact | Scope::Lease => "begin_at",
    };
    let begin = Ident::new(begin, here);
    quote_spanned!(here=>
        #take
        let mut held = match #calls::#begin(#owner, #place, request) #wait {
            #ok(held) => held,
            #err(error) => #refused,
        };
    )
}

/// The same with a connection for each try, which is dropped before the pause after it.
fn poll(
    site: &Site,
    parts: &Parts,
    connection: &BodyConnection,
    calls: &TokenStream,
    wait: Option<&TokenStream>,
) -> TokenStream {
    let here = Span::mixed_site();
    let Parts {
        private,
        ok,
        err,
        refused,
        ..
    } = parts;
    let BodyConnection {
        pool,
        taken,
        owner,
        place,
        ..
    } = connection;
    let scope = Ident::new(site.args.scope().name(), here);
    let option = quote_spanned!(here=> #private::core::option::Option);
    quote_spanned!(here=>
        #pool
        let mut tries = #private::Tries::#scope(request);
        let mut taken;
        let mut held = loop {
            taken = #taken;
            match #calls::try_at(&mut tries, #owner, #place) #wait {
                #ok(#option::Some(held)) => break held,
                #ok(#option::None) => {}
                #err(error) => #refused,
            }
            #private::core::mem::drop(taken);
            #calls::pause(&mut tries) #wait;
        };
    )
}

/// A statement that runs the body, and makes the local `result`.
fn run(site: &Site, parts: &Parts, body: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    if site.function.is_blocking() {
        let output = &parts.output;
        // The guard moves into the closure. That makes it callable only once, so it can return what it borrows mutably.
        return quote_spanned!(here=>
            let running = running.enter();
            #[allow(clippy::redundant_closure_call, reason = "the body can return early")]
            let result = (|| -> #output {
                let _running = running;
                #body
            })();
        );
    }
    let body = parts.async_body(body);
    let within = if site.args.max_hold.is_some() {
        quote_spanned!(here=> within)
    } else {
        quote_spanned!(here=> watch)
    };
    quote_spanned!(here=> let result = running.#within(#body).await;)
}

/// Adds the returns of `on_held` and `on_done` for a lock that was not acquired. They run only if the body did not: their expressions
/// can use parameters that the body moves.
fn with_refusals(steps: TokenStream, site: &Site, parts: &Parts) -> TokenStream {
    let Parts {
        output,
        converted,
        error,
        ..
    } = parts;
    let Args {
        on_held, on_done, ..
    } = &site.args;
    if on_held.is_none() && on_done.is_none() {
        return steps;
    }
    let here = Span::mixed_site();
    let is_held = match &site.connection {
        Connection::Lease(_) => quote_spanned!(here=> is_held),
        Connection::Place { .. } | Connection::Expression(_) | Connection::Pool(_) => {
            quote_spanned!(here=> is_busy)
        }
    };
    let on_held = on_held.as_ref().map(|on_held| {
        quote_spanned!(here=>
            if #error::#is_held(&error) {
                let instead: #output = #on_held;
                return instead;
            }
        )
    });
    let on_done = on_done.as_ref().map(|on_done| {
        quote_spanned!(here=>
            if #error::is_done(&error) {
                let instead: #output = #on_done;
                return instead;
            }
        )
    });
    quote_spanned!(here=>
        let error = 'held: {
            let result = { #steps };
            return result;
        };
        #on_held
        #on_done
        #converted
    )
}

/// Whether the body can borrow its connection again. It cannot if the connection is a parameter `conn: &mut …`.
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
    root == "self" || params.any(|param| param.is_mut(root))
}
