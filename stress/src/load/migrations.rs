//! Runs of the pending migrations by all processes at once. After enough ticks a new version
//! becomes pending for all of them.

use super::Load;
use crate::bug::Bug;
use crate::buggy;
use crate::clock::pass;
use crate::migration::Migrations;
use crate::operation_kind::OperationKind;
use crate::outcome::{self, Outcome};
use advisory_runtime::migrations::{Error, Migrator};
use std::time::Duration;

/// How many ticks are drawn before the next version.
const TICKS_A_VERSION: i64 = 200;
/// How many versions a process knows: one that was down has missed some.
const KNOWN: i64 = 4;

impl Load {
    /// Migrates to each version, until the load ends.
    pub(crate) async fn migrate(&self) {
        let is_buggy = self.assignment.bug == Some(Bug::UnlockedMigrations);
        if self.assignment.is_pooled || (self.assignment.bug.is_some() && !is_buggy) {
            return;
        }
        let ticks = if is_buggy {
            TICKS_A_VERSION / 4
        } else {
            TICKS_A_VERSION
        };
        let mut done = -1;
        while !self.is_over() {
            let newest = self.stage(ticks);
            if newest > done && self.migrate_to(newest, is_buggy).await {
                done = newest;
            } else {
                pass(Duration::from_millis(10)).await;
            }
        }
    }

    /// Whether no migration is pending.
    async fn migrate_to(&self, newest: i64, is_buggy: bool) -> bool {
        let op = self.begin(OperationKind::Migrate, newest);
        let versions: Vec<i64> = ((newest - KNOWN).max(0)..=newest).collect();
        if is_buggy {
            let ran = buggy::migrate(&self.pool, op, &versions).await;
            let why = ran.map_or_else(
                |error| outcome::name(&error, error.database()),
                |()| "-".to_owned(),
            );
            self.end(OperationKind::Migrate, op, Outcome::Unknown, 0, &why);
            return true;
        }
        let migrator = Migrator::new(Migrations { op, versions }).wait(Duration::from_secs(2));
        let ran = migrator.run(&self.assignment.url).await;
        let (outcome, why) = match &ran {
            Ok(report) if report.applied.is_empty() => (Outcome::Taken, "-"),
            Ok(_) => (Outcome::Confirmed, "-"),
            Err(error) => of_error(error),
        };
        let applied = match &ran {
            Ok(report) => &report.applied[..],
            Err(error) => error.applied(),
        };
        for version in applied.iter().filter_map(|name| name.parse().ok()) {
            self.log.applied(op, version);
        }
        self.end(OperationKind::Migrate, op, outcome, 0, why);
        ran.is_ok()
    }
}

/// The outcome that an error of a migration means, and its name.
const fn of_error(error: &Error) -> (Outcome, &'static str) {
    match error {
        Error::TimedOut { .. } => (Outcome::Refused, "TimedOut"),
        Error::Connect { .. } => (Outcome::Failed, "Connect"),
        Error::Pooler => (Outcome::Failed, "Pooler"),
        Error::Lock(_) => (Outcome::Failed, "Lock"),
        Error::Source(_) => (Outcome::Failed, "Source"),
        Error::ConnectionLost { .. } => (Outcome::Unknown, "ConnectionLost"),
        Error::LockLost { .. } => (Outcome::Unknown, "LockLost"),
        _ => (Outcome::Unknown, "Migration"),
    }
}
