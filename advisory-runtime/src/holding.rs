//! The body of a locked call while it runs: what its task holds, and for how long it may.
//!
//! In debug builds a thread knows, while it polls a body, which locks that body stands under. A call inside it that would wait
//! for one of them on another connection waits for itself.

use crate::taken::Taken;
use crate::trail::Trail;
use crate::{Key, Request};
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

thread_local! {
    static HELD: RefCell<Vec<Under>> = const { RefCell::new(Vec::new()) };
}

/// One lock that the running body stands under.
struct Under {
    /// Where its connection is; a lease has none.
    address: Option<usize>,
    taken: Arc<Taken>,
}

/// What a body runs under; see [`Run::watch`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Run {
    address: usize,
    taken: Option<Arc<Taken>>,
    max_hold: Option<Duration>,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl Run {
    #[cfg_attr(
        not(feature = "tracing"),
        expect(unused_variables, reason = "a body has a span with the feature alone")
    )]
    pub(crate) fn new(
        address: usize,
        taken: Option<&Arc<Taken>>,
        max_hold: Option<Duration>,
        trail: Option<&Trail>,
    ) -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: trail.map_or_else(tracing::Span::none, Trail::span),
            address,
            taken: taken.cloned(),
            max_hold,
        }
    }

    /// Runs the body to its end.
    pub const fn watch<F: Future>(self, body: F) -> Watch<F> {
        Watch { body, run: self }
    }

    /// Runs the body, and drops it when it has held the lock for too long: `None`.
    pub async fn within<F: Future>(self, body: F) -> Option<F::Output> {
        let max_hold = self.max_hold.unwrap_or(Duration::MAX);
        tokio::time::timeout(max_hold, self.watch(body)).await.ok()
    }

    /// Marks this thread as inside the body, until the answer is dropped.
    pub fn enter(&self) -> Entered {
        Entered {
            _mark: self
                .taken
                .as_ref()
                .map(|taken| mark(Some(self.address), taken)),
            #[cfg(feature = "tracing")]
            _span: self.span.clone().entered(),
        }
    }
}

pin_project! {
    /// A body, marked as running whenever it is polled. A type with a name: the future of an `async fn` that awaits the body
    /// would be one more for the compiler to check in each locked function.
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
        let _under = this.run.enter();
        this.body.poll(context)
    }
}

/// Inside a body, until dropped.
#[doc(hidden)]
#[must_use]
pub struct Entered {
    _mark: Option<Mark>,
    #[cfg(feature = "tracing")]
    _span: tracing::span::EnteredSpan,
}

/// This thread is inside a body, until dropped.
#[must_use]
pub(crate) struct Mark {
    is_under: bool,
}

pub(crate) fn mark(address: Option<usize>, taken: &Arc<Taken>) -> Mark {
    let taken = Arc::clone(taken);
    let under = Under { address, taken };
    // Gone while the thread ends, when nothing waits any more.
    let is_under = HELD.try_with(|held| held.borrow_mut().push(under)).is_ok();
    Mark { is_under }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.is_under {
            drop(HELD.try_with(|held| held.borrow_mut().pop()));
        }
    }
}

/// The bodies that this thread is inside of: where the connection of each is, and what it holds.
pub(crate) fn bodies() -> Vec<(Option<usize>, Arc<Taken>)> {
    let all = |held: &RefCell<Vec<Under>>| {
        let held = held.borrow();
        let all = held
            .iter()
            .map(|under| (under.address, Arc::clone(&under.taken)));
        all.collect()
    };
    HELD.try_with(all).unwrap_or_default()
}

/// The keys of a request that this task holds on another connection, in a mode that excludes it.
pub(crate) fn held_by_this_task(address: usize, request: &Request) -> Vec<Key> {
    if !cfg!(debug_assertions) {
        return Vec::new();
    }
    let held = |held: &RefCell<Vec<Under>>| {
        let held = held.borrow();
        let others = held
            .iter()
            .filter(|under| under.address != Some(address))
            .filter(|under| under.taken.mode.excludes(request.mode));
        others
            .flat_map(|under| under.taken.keys())
            .filter(|key| request.keys.contains(key))
            .collect()
    };
    HELD.try_with(held).unwrap_or_default()
}
