//! The body of one row: caught if it panics, observed, and its row ended.

use super::Settings;
use super::shared::{Shared, Waiting};
use crate::claim::rows::{ClaimEnd, ended, watch};
use crate::claim::sql::end_of;
use crate::claim::table::{Claim, MaybeRunAt};
use crate::claim::{Claimed, Error};
use crate::observe::{Outcome, Telemetry};
use crate::rows::{End, Reach};
use std::any::Any;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How the body of a row failed.
enum Failure {
    Work(String),
    Panicked(String),
    Claim(Error),
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(message) => f.write_str(message),
            Self::Panicked(message) => write!(f, "the body panicked: {message}"),
            Self::Claim(error) => error.fmt(f),
        }
    }
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
impl crate::observe::Observed for Failure {
    fn word(&self) -> &'static str {
        match self {
            Self::Work(_) => "failed",
            Self::Panicked(_) => "panicked",
            Self::Claim(Error::Lost { .. }) => "lost",
            Self::Claim(Error::CommitUnknown { .. }) => "commit_unknown",
            Self::Claim(Error::Pool(_)) => "pool",
            Self::Claim(_) => "database",
        }
    }

    #[cfg(feature = "tracing")]
    fn severity(&self) -> crate::observe::Severity {
        match self {
            Self::Claim(Error::Lost { .. }) => crate::observe::Severity::Lost,
            _ => crate::observe::Severity::Other,
        }
    }

    #[cfg(feature = "tracing")]
    fn waited(&self) -> Option<Duration> {
        None
    }
}

/// Runs the body of a row, and has its claim ended. A body that cannot be dropped runs to its end,
/// and holds its slot meanwhile.
pub(super) async fn job<T, R, E, F>(
    settings: &Settings<'_, T>,
    shared: &Shared<T, R>,
    body: &impl Fn(Claimed<T>) -> F,
    row: Waiting<T, R>,
    drops_bodies: bool,
) where
    T: Claim,
    R: Reach,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let Waiting {
        claimed, mut kept, ..
    } = row;
    let mut telemetry = Telemetry::new(settings.table, "claim", "exclusive", false);
    telemetry.record_acquired(Duration::ZERO);
    let since = Instant::now();
    let body = caught_body(settings, shared, body, &claimed, &telemetry);
    let result = if drops_bodies {
        watch(&claimed, body).await
    } else {
        Ok(body.await)
    };
    shared.pace().record(since.elapsed());
    let result = match result {
        Ok(result) => result,
        Err(lost) => {
            return telemetry.record_end(Err::<Outcome, _>(&Failure::Claim(lost)));
        }
    };
    let Some((kept, place)) = kept.take() else {
        return;
    };
    let end = match &result {
        Ok(()) => ClaimEnd::new(End::Complete),
        Err(failure) => ClaimEnd::failed(settings.on_err, &failure.to_string()),
    };
    // The slot is free again: the end goes together with others.
    kept.end_then(
        end,
        Box::new(move |done| {
            let done = ended(&claimed, done).map_err(Failure::Claim);
            telemetry.record_end(result.and(done).as_ref().map(|()| Outcome::Done));
            drop(place);
        }),
    );
}

/// The body, whose panics are failures.
async fn caught_body<T, R, E, F>(
    settings: &Settings<'_, T>,
    shared: &Shared<T, R>,
    body: &impl Fn(Claimed<T>) -> F,
    claimed: &Claimed<T>,
    telemetry: &Telemetry,
) -> Result<(), Failure>
where
    T: Claim,
    R: Reach,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    // The text is made here, because that can panic too.
    let called = async {
        let result = body(claimed.clone()).await;
        result.map_err(|error| error.to_string())
    };
    #[cfg(not(feature = "tracing"))]
    let _: &Telemetry = telemetry;
    let entered = Entered {
        #[cfg(feature = "tracing")]
        span: telemetry.span(),
    };
    let result = match caught(called, entered).await {
        Ok(result) => result.map_err(Failure::Work),
        Err(message) => Err(Failure::Panicked(message)),
    };
    if result.is_err() && is_released::<T>(settings.on_err) {
        drop(timeout(settings.poll, shared.stopping.acquire()).await);
    }
    result
}

/// Whether the row of a failed body can be claimed again at once.
fn is_released<T: Claim>(on_err: End) -> bool {
    match end_of::<T>(on_err) {
        End::Retry { .. } => T::RunAt::COLUMN.is_none(),
        end => end == End::Release,
    }
}

/// The span of a body, which each of its polls enters.
struct Entered {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

/// The future's output, or the message of its panic, also of one in the destructor of what it
/// holds.
async fn caught<F: Future>(future: F, entered: Entered) -> Result<F::Output, String> {
    let mut future = DropCaught(Some(Box::pin(future)));
    std::future::poll_fn(move |context| {
        #[cfg(feature = "tracing")]
        let _entered = entered.span.enter();
        #[cfg(not(feature = "tracing"))]
        let _: &Entered = &entered;
        let Some(running) = &mut future.0 else {
            return Poll::Pending;
        };
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
        let result = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(message(&*panic)),
        };
        // After a panic it is not polled again.
        let dropped = future.drop_caught();
        Poll::Ready(result.and_then(|output| dropped.map(|()| output)))
    })
    .await
}

/// Catches a panic in the destructor of a future.
struct DropCaught<F>(Option<Pin<Box<F>>>);

impl<F> DropCaught<F> {
    fn drop_caught(&mut self) -> Result<(), String> {
        let future = self.0.take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(future)));
        dropped.map_err(|panic| message(&*panic))
    }
}

impl<F> Drop for DropCaught<F> {
    fn drop(&mut self) {
        // Nobody is there to hear of it.
        drop(self.drop_caught());
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

/// The table as a label that lives as long as the process; each is made once.
pub(super) fn label(table: &str) -> &'static str {
    static LABELS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut labels = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(label) = labels.iter().find(|label| **label == table) {
        return label;
    }
    let label: &'static str = table.to_owned().leak();
    labels.push(label);
    label
}
