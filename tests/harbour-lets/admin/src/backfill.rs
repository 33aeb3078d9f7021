//! Changes of many rows that a clerk starts by hand, and sometimes a second clerk an hour later.

use crate::Office;
use advisory_runtime::advisory_lock;
use lets_store::{Error, Result};

impl Office {
    /// Rewrites all addresses in lower case, in steps that commit by themselves.
    #[advisory_lock(
        key = "backfill:emails",
        scope = "session",
        wait = "never",
        on_held = Err(Error::Refused),
        max_hold = "1h",
        component = "back office",
        conn = self.pool.get()?
    )]
    pub fn lower_emails(&self) -> Result<usize> {
        Err(Error::Refused)
    }

    /// A step of the day's work is done once; `name` says which.
    #[advisory_lock(
        key = "backfill:<name>:<day>",
        name = "backfill-step",
        with(day = today),
        component = "back office",
        conn = self.pool.get()?,
        queue = 2,
        wait = "30s"
    )]
    pub fn step(&self, name: &str, today: chrono::NaiveDate) -> Result<bool> {
        Err(Error::Refused)
    }
}
