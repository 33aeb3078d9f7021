//! The expansion for a lock: acquire, run the body with the connection, finish.

use super::body_connection::{BodyConnection, body_connection};
use super::captures::Captures;
use super::parts::Parts;
use super::request::request;
use super::{function, refusal};
use crate::args::choice::Scope;
use crate::function::mentions;
use crate::function::params::Receiver;
use crate::site::connection::Connection;
use crate::site::lock::LockSite;
use crate::tokens::hygienic;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;

pub(crate) fn expand(lock: &LockSite) -> TokenStream {
    let site = &lock.site;
    let captures = Captures::new(site, Some(&lock.connection));
    let parts = Parts::new(site);
    let steps = lock_steps(lock, &parts, &captures.borrow);
    let refusals = refusal(&parts, "is_busy", site.args.on_held.as_ref()).unwrap_or_default();
    function(site, captures, &parts, steps, &refusals)
}

/// Statements that acquire the lock, run the body and release the lock, and the body's result. An
/// error is `converted` and returned where it happens; with `on_held`, one from before the body
/// breaks out of `'held` instead.
fn lock_steps(lock: &LockSite, parts: &Parts, borrow: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let Parts {
        private,
        calls,
        wait,
        output,
        converted,
        refused,
        handle,
        ..
    } = parts;
    let site = &lock.site;
    let connection = body_connection(lock, parts);
    let BodyConnection { name, body, .. } = &connection;
    let request = request(lock, parts);
    // Declared before the connection, so that it is dropped after it: the next call then finds the
    // connection back in its pool.
    let turn = lock.site.args.queue.as_ref().map(|limit| {
        hygienic!(
            let turn = match #calls::queue(&mut request, #limit) #wait {
                #private::Ok(turn) => turn,
                #private::Err(error) => #refused,
            };
        )
    });
    let begin = match &lock.connection {
        Connection::Expression(_) | Connection::Pool(_) if lock.site.args.poll.is_some() => {
            poll(lock, parts, &connection)
        }
        _ => begin(lock, parts, &connection),
    };
    // A transaction-level lock protects statements on its connection alone, so there a warning
    // about an unused connection is right. A session-level lock also protects work on other
    // connections, or on none.
    let is_unused = lock.connection.source().is_some() && !mentions(body, "conn");
    let warning = (is_unused && !lock.site.args.is_session()).then(|| {
        let argument = site.args.span("pool").or_else(|| site.args.span("conn"));
        let (at, krate) = (argument.unwrap_or(here), site.args.runtime());
        quote_spanned!(at=> #krate::__private::connection_is_unused();)
    });
    let quiet = lock.site.args.is_session().then(
        || hygienic!(#[allow(unused_variables, reason = "the connection is there for the lock")]),
    );
    let (may_be_unused, mutable) = may_be_reborrowed(lock)
        .then(|| {
            let reason = "only a body that borrows it once more needs it";
            (
                hygienic!(#[allow(unused_mut, reason = #reason)]),
                // With another span the compiler would take the connection for a variable of the
                // macro's own, and never report it.
                quote_spanned!(name.span()=> mut),
            )
        })
        .unzip();
    let bound = if is_unused {
        hygienic!(_)
    } else {
        hygienic!(#mutable #name)
    };
    let run = run(lock, parts, borrow, body);
    let exceed = (lock.site.args.max_hold.is_some() && !site.function.is_blocking()).then(|| {
        let option = hygienic!(#private::core::option::Option);
        hygienic!(
            let result = match result {
                #option::Some(result) => result,
                #option::None => {
                    let error = #private::exceed(held).await;
                    return #converted;
                }
            };
        )
    });
    // In an async function the last call also converts the error: a match on the result of an
    // `await` is slow to compile. But the conversion of `err` can borrow parameters, and must not
    // do so while the call waits.
    let finish = if site.function.is_blocking() || site.args.err.is_some() {
        hygienic!(
            match #calls::finish_at(held, result) #wait {
                #private::Ok(result) => result,
                #private::Err(error) => #converted,
            }
        )
    } else {
        let at = output.span().resolved_at(here);
        quote_spanned!(at=> #private::returns::<#output>().finish(held, result).await)
    };
    hygienic!(
        #warning
        #request
        #turn
        #begin
        #handle
        let result = {
            #quiet
            #may_be_unused
            let (running, #bound) = held.run();
            #run
            result
        };
        #exceed
        #finish
    )
}

/// Statements that take the connection and the lock, as the local `held`.
fn begin(lock: &LockSite, parts: &Parts, connection: &BodyConnection) -> TokenStream {
    let here = Span::mixed_site();
    let Parts {
        private,
        calls,
        wait,
        refused,
        ..
    } = parts;
    let BodyConnection {
        take, owner, place, ..
    } = connection;
    let begin = match lock.site.args.scope() {
        Scope::Session => "acquire_at",
        Scope::Xact => "begin_at",
    };
    let begin = Ident::new(begin, here);
    hygienic!(
        #take
        let mut held = match #calls::#begin(#owner, #place, request) #wait {
            #private::Ok(held) => held,
            #private::Err(error) => #refused,
        };
    )
}

/// Like [`begin`], with a connection for each try, which is dropped before the pause that follows.
fn poll(lock: &LockSite, parts: &Parts, connection: &BodyConnection) -> TokenStream {
    let here = Span::mixed_site();
    let Parts {
        private,
        calls,
        wait,
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
    let scope = Ident::new(lock.site.args.scope().name(), here);
    let option = hygienic!(#private::core::option::Option);
    hygienic!(
        #pool
        let mut tries = #private::PoolPoll::#scope(request);
        let mut taken;
        let mut held = loop {
            taken = #taken;
            match #calls::try_at(&mut tries, #owner, #place) #wait {
                #private::Ok(#option::Some(held)) => break held,
                #private::Ok(#option::None) => {}
                #private::Err(error) => #refused,
            }
            #private::core::mem::drop(taken);
            #calls::pause(&mut tries) #wait;
        };
    )
}

/// A statement that runs the body, and makes the local `result`.
fn run(lock: &LockSite, parts: &Parts, borrow: &TokenStream, body: &TokenStream) -> TokenStream {
    if lock.site.function.is_blocking() {
        let output = &parts.output;
        // The guard moves into the closure. That makes it callable only once, so it can return what
        // it borrows mutably.
        return hygienic!(
            let running = running.enter();
            #[allow(clippy::redundant_closure_call, reason = "the body can return early")]
            let result = (|| -> #output {
                let _running = running;
                #body
            })();
        );
    }
    let body = parts.async_body(borrow, body);
    let method = if lock.site.args.max_hold.is_some() {
        hygienic!(timeout)
    } else {
        hygienic!(watch)
    };
    hygienic!(let result = running.#method(#body).await;)
}

/// Returns whether the body can borrow its connection again. It cannot if the connection is a
/// parameter `conn: &mut …`.
fn may_be_reborrowed(lock: &LockSite) -> bool {
    let Connection::Place {
        root,
        by: Receiver::Mutable,
        ..
    } = &lock.connection
    else {
        return true;
    };
    let mut params = lock.site.function.params.iter();
    root == "self" || params.any(|param| param.is_mut(root))
}
