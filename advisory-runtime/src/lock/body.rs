//! Runs the body of a locked call: in its span, marked for the checks of debug builds, and within
//! `max_hold`. After a panic, the guard's `Drop` cleans up.

use super::call::Call;
#[cfg(feature = "diesel-async")]
use super::dropped::Dropped;
use crate::debug::LockSet;
use crate::debug::bodies::{InBody, enter_body};
use crate::debug::idle::Statements;
use crate::driver::Driver;
#[cfg(feature = "tracing")]
use crate::observe::Telemetry;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
#[cfg(feature = "diesel-async")]
use std::{future::poll_fn, pin::pin, time::Duration};

/// The state that a body runs in; see [`Run::watch`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Run {
    address: usize,
    locks: Option<Arc<LockSet>>,
    statements: Statements,
    #[cfg(feature = "diesel-async")]
    max_hold: Option<Duration>,
    #[cfg(feature = "diesel-async")]
    dropped: Dropped,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl Run {
    pub(super) fn new<D: Driver>(conn: &mut D, call: &mut Call) -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: (call.telemetry.as_ref()).map_or_else(tracing::Span::none, Telemetry::span),
            address: std::ptr::from_mut(conn).addr(),
            locks: call.checks.locks.set().cloned(),
            statements: call.checks.statements.run(),
            #[cfg(feature = "diesel-async")]
            max_hold: call.request.max_hold,
            #[cfg(feature = "diesel-async")]
            dropped: call.may_drop_body(),
        }
    }

    /// Runs the body to its end.
    pub const fn watch<F: Future>(self, body: F) -> Watch<F> {
        Watch { body, run: self }
    }

    /// Runs the body. Drops it and returns `None` when it has held the lock for `max_hold`.
    #[cfg(feature = "diesel-async")]
    pub async fn timeout<F: Future>(self, body: F) -> Option<F::Output> {
        let (address, dropped) = (self.address, self.dropped.clone());
        let max_hold = self.max_hold.unwrap_or(Duration::MAX);
        let mut body = pin!(Some(self.watch(body)));
        let ended = poll_fn(|context| match body.as_mut().as_pin_mut() {
            Some(body) => body.poll(context),
            None => Poll::Pending,
        });
        let ended = crate::driver::timeout(max_hold, ended).await;
        if ended.is_none() {
            dropped.drop_body(address, || body.set(None));
        }
        ended
    }

    /// Marks this thread as inside the body, until the returned value is dropped.
    pub fn enter(&self) -> Entered {
        Entered {
            _in_body: self
                .locks
                .as_ref()
                .map(|locks| enter_body(Some(self.address), locks)),
            #[cfg(feature = "tracing")]
            _span: self.span.clone().entered(),
        }
    }
}

pin_project! {
    /// A body, marked as running while it is polled. A named type costs less compile time in each
    /// locked function than an `async fn` around the body.
    #[doc(hidden)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Watch<F> {
        #[pin]
        body: F,
        run: Run,
    }
}

impl<F: Future> Future for Watch<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.run.enter();
        match this.run.statements.waker(context) {
            Some(waker) => this.body.poll(&mut Context::from_waker(&waker)),
            None => this.body.poll(context),
        }
    }
}

/// Inside a body, until dropped.
#[doc(hidden)]
#[must_use]
pub struct Entered {
    _in_body: Option<InBody>,
    #[cfg(feature = "tracing")]
    _span: tracing::span::EnteredSpan,
}
