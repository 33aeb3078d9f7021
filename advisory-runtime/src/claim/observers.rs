//! Reports the events of claims to `tracing` and `metrics`.

use super::mutex::locked;
use super::table::Claim;
use super::{BodyOutcome, Claimed, Error, Event};
use crate::observe::{Outcome, Telemetry};
use crate::rows::Observer;
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Returns an observer for the enabled features that passes each event on to `next`. `claim` is the
/// claim's name in logs.
pub(super) fn observers<T: Claim>(
    claim: String,
    next: Option<Observer<Claimed<T>, Error>>,
) -> Option<Observer<Claimed<T>, Error>> {
    if cfg!(not(any(feature = "tracing", feature = "metrics"))) {
        return next;
    }
    let table = label(&super::sql::table_name::<T>());
    Some(Arc::new(move |event| {
        record(table, &claim, &event);
        if let Some(next) = &next {
            next(event);
        }
    }))
}

fn record<T: Claim>(table: &'static str, claim: &str, event: &Event<'_, T>) {
    #[cfg(not(feature = "tracing"))]
    let _: &str = claim;
    match event {
        Event::Started(job) => {
            let mut telemetry = Telemetry::new(table, "claim", "exclusive", false);
            telemetry.record_acquired(Duration::ZERO);
            *job.telemetry() = Some(telemetry);
        }
        Event::Finished { row, outcome, .. } => {
            let telemetry = row.telemetry().take();
            if let Some(mut telemetry) = telemetry {
                match outcome {
                    // `Telemetry` reports it when dropped.
                    BodyOutcome::Dropped => {}
                    BodyOutcome::Done => {
                        telemetry.record_end(Ok::<_, &BodyOutcome<'_, Error>>(Outcome::Done));
                    }
                    outcome => telemetry.record_end(Err(outcome)),
                }
            }
        }
        #[cfg(feature = "tracing")]
        Event::EndFailed(_, error) => {
            tracing::warn!(
                pattern = claim,
                scope = "claim",
                "the end was refused, and is sent again: {error}"
            );
        }
        #[cfg(feature = "tracing")]
        Event::Refused(error) | Event::NoConnection(error) => {
            tracing::warn!(
                pattern = claim,
                scope = "claim",
                "the worker could not claim, and tries again: {error}"
            );
        }
        _ => {}
    }
}

impl Display for BodyOutcome<'_, Error> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) | Self::Panicked(text) => f.write_str(text),
            Self::Error(error) => error.fmt(f),
            Self::Done | Self::Dropped => Ok(()),
        }
    }
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
impl crate::observe::Observed for BodyOutcome<'_, Error> {
    fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed(_) => "failed",
            Self::Panicked(_) => "panicked",
            Self::Error(Error::Lost { .. }) => "lost",
            Self::Error(Error::CommitUnknown { .. }) => "commit_unknown",
            Self::Error(Error::Pool(_)) => "pool",
            Self::Error(_) => "database",
            Self::Dropped => "dropped",
        }
    }

    #[cfg(feature = "tracing")]
    fn severity(&self) -> crate::observe::Severity {
        match self {
            Self::Error(Error::Lost { .. }) => crate::observe::Severity::Lost,
            _ => crate::observe::Severity::Other,
        }
    }

    #[cfg(feature = "tracing")]
    fn waited(&self) -> Option<Duration> {
        None
    }
}

/// Returns the table's name as a label, which is leaked once per table.
fn label(table: &str) -> &'static str {
    static LABELS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut labels = locked(&LABELS);
    if let Some(label) = labels.iter().find(|label| **label == table) {
        return label;
    }
    let label: &'static str = table.to_owned().leak();
    labels.push(label);
    label
}
