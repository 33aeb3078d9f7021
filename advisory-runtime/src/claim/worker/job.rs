//! The work on one row: caught if it panics, observed, and ended.

use super::{Settings, Shared};
use crate::Pool;
use crate::claim::run::run;
use crate::claim::sql::How;
use crate::claim::table::{Claim, MaybeRunAt};
use crate::claim::{Claimed, Error, OnErr};
use crate::observe::{Outcome, Telemetry};
use std::any::Any;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

/// How the work on a row went wrong.
enum Failure {
    Work(String),
    Panicked(String),
    Claim(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Claim(error)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(message) => f.write_str(message),
            Self::Panicked(message) => write!(f, "the work panicked: {message}"),
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

/// Works on a row, and ends its claim. The slot is free again when this future is dropped.
pub(super) async fn job<T, P, E, F>(
    settings: &Settings<'_, T, P>,
    shared: &Shared<'_, T>,
    work: &impl Fn(Claimed<T>) -> F,
    claimed: Claimed<T>,
    _slot: SemaphorePermit<'_>,
) where
    T: Claim,
    P: Pool + Clone + Send + 'static,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let mut telemetry = Telemetry::new(settings.table, "claim", "exclusive", false);
    telemetry.record_acquired(Duration::ZERO);
    let caught = async {
        // The text is made here, because that can panic too.
        let called = async {
            let worked = work(claimed.share()).await;
            worked.map_err(|error| error.to_string())
        };
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
    };
    let ended = run(settings.pool, &claimed, settings.on_err, caught).await;
    telemetry.record_end(ended.as_ref().map(|()| Outcome::Done));
}

/// Whether the row of a failed work can be claimed again at once.
const fn is_released<T: Claim>(on_err: OnErr) -> bool {
    match on_err.how::<T>("") {
        How::Retry(..) => T::RunAt::COLUMN.is_none(),
        How::Release => true,
        _ => false,
    }
}

/// The span of a work, which each of its polls enters.
struct Entered {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

/// The future's output, or the message of its panic.
async fn caught<F: Future>(future: F, entered: Entered) -> Result<F::Output, String> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        #[cfg(feature = "tracing")]
        let _entered = entered.span.enter();
        #[cfg(not(feature = "tracing"))]
        let _: &Entered = &entered;
        poll_caught(future.as_mut(), context)
    })
    .await
}

/// After a panic the future is dropped and not polled again.
fn poll_caught<F: Future>(
    future: Pin<&mut F>,
    context: &mut Context<'_>,
) -> Poll<Result<F::Output, String>> {
    match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(message(&*panic))),
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

/// Logs a warning about a table's claims.
pub(super) fn warn(table: &'static str, message: &fmt::Arguments<'_>) {
    #[cfg(feature = "tracing")]
    tracing::warn!(pattern = table, scope = "claim", "{message}");
    #[cfg(not(feature = "tracing"))]
    let _: (&str, &fmt::Arguments<'_>) = (table, message);
}
