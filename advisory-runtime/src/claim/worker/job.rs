//! Runs the body of one row, catches its panic, and has its claim ended.

use super::Settings;
use super::shared::{Shared, Waiting};
use crate::claim::optional_column::MaybeRunAt;
use crate::claim::rows::{ClaimEnd, ended, watch};
use crate::claim::sql::ends::end_of;
use crate::claim::table::Claim;
use crate::claim::{BodyOutcome, Claimed, Error, Event};
use crate::rows::{End, tell};
use std::any::Any;
use std::fmt::Display;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A body that the observer follows.
struct Observed<T: Claim> {
    job: Claimed<T>,
    since: Instant,
    /// The time that the body ran, once it has returned.
    ran: Option<Duration>,
    is_finished: bool,
}

impl<T: Claim> Observed<T> {
    fn new(job: Claimed<T>) -> Self {
        tell(job.observer(), Event::Started(&job));
        Self {
            job,
            since: Instant::now(),
            ran: None,
            is_finished: false,
        }
    }

    fn tell(&mut self, outcome: BodyOutcome<'_, Error>) {
        self.is_finished = true;
        let finished = Event::Finished {
            row: &self.job,
            outcome,
            ran: self.ran.unwrap_or_else(|| self.since.elapsed()),
        };
        tell(self.job.observer(), finished);
    }
}

impl<T: Claim> Drop for Observed<T> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.tell(BodyOutcome::Dropped);
        }
    }
}

/// The failure of a body, and the message for its row.
struct Failed {
    message: String,
    has_panicked: bool,
}

/// Runs the body of a row, and has its claim ended. A blocking body cannot be dropped, so it runs
/// to its end and holds its slot until then.
pub(super) async fn job<T, E, F>(
    settings: &Settings<'_, T>,
    shared: &Shared<T>,
    body: &impl Fn(Claimed<T>) -> F,
    row: Waiting<T>,
) where
    T: Claim,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let Waiting {
        claimed,
        mut renewal,
        ..
    } = row;
    let mut observed = Observed::new(claimed.clone());
    // Making the text can panic too, and so can the destructor of the body's future.
    let called = async {
        let result = body(claimed.clone()).await;
        result.map_err(|error| error.to_string())
    };
    #[cfg(feature = "tracing")]
    let called = {
        use tracing::Instrument as _;
        let telemetry = claimed.telemetry();
        let span = telemetry.as_ref().map(crate::observe::Telemetry::span);
        called.instrument(span.unwrap_or_else(tracing::Span::none))
    };
    // The futures around it hold it several times, and it can be large.
    let body = run_body(settings, shared, Box::pin(called));
    let result = if shared.is_async {
        watch(&claimed, body).await
    } else {
        Ok(body.await)
    };
    let ran = observed.since.elapsed();
    observed.ran = Some(ran);
    shared.body_times().record(ran);
    let result = match result {
        Ok(result) => result,
        Err(lost) => return observed.tell(BodyOutcome::Error(&lost)),
    };
    let Some((renewal, count)) = renewal.take() else {
        return;
    };
    let end = match &result {
        Ok(()) => ClaimEnd::new(End::Complete),
        Err(failed) => ClaimEnd::failed(settings.on_err, &failed.message),
    };
    // The slot is free now. The keeper sends the end together with others.
    renewal.end_then(
        end,
        Box::new(move |done| {
            let done = ended(&claimed, done);
            observed.tell(match (&result, &done) {
                (Err(failed), _) if failed.has_panicked => BodyOutcome::Panicked(&failed.message),
                (Err(failed), _) => BodyOutcome::Failed(&failed.message),
                (Ok(()), Err(error)) => BodyOutcome::Error(error),
                (Ok(()), Ok(())) => BodyOutcome::Done,
            });
            drop(count);
        }),
    );
}

/// Runs a body. After a failure, waits before the row is released.
async fn run_body<T: Claim>(
    settings: &Settings<'_, T>,
    shared: &Shared<T>,
    body: Pin<Box<impl Future<Output = Result<(), String>>>>,
) -> Result<(), Failed> {
    let result = caught(body).await;
    if result.is_err() && is_released::<T>(settings.on_err) {
        drop(timeout(settings.poll, shared.stopping.acquire()).await);
    }
    result
}

/// Returns `true` if the row of a failed body can be claimed again at once.
fn is_released<T: Claim>(on_err: End) -> bool {
    match end_of::<T>(on_err) {
        End::Retry { .. } => T::RunAt::COLUMN.is_none(),
        End::Release => true,
        End::Complete | End::Fail | End::Delete => false,
    }
}

/// Turns an error or a panic of a body into a failure.
async fn caught(body: Pin<Box<impl Future<Output = Result<(), String>>>>) -> Result<(), Failed> {
    let failed = |message, has_panicked| Failed {
        message,
        has_panicked,
    };
    let mut body = DropCaught(Some(body));
    poll_fn(|context| {
        let Some(running) = &mut body.0 else {
            return Poll::Pending;
        };
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
            Ok(polled) => polled.map(|result| result.map_err(|error| failed(error, false))),
            Err(panic) => {
                let message = format!("the body panicked: {}", message(&*panic));
                Poll::Ready(Err(failed(message, true)))
            }
        }
    })
    .await
}

/// Catches a panic in the destructor of a future that has not returned.
struct DropCaught<F>(Option<Pin<Box<F>>>);

impl<F> Drop for DropCaught<F> {
    fn drop(&mut self) {
        let future = self.0.take();
        drop(catch_unwind(AssertUnwindSafe(|| drop(future))));
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
