//! The task of one worker, passed as the arguments of its process.

use crate::bug::Bug;
use std::path::PathBuf;

/// The first argument that makes the program a worker.
pub(crate) const WORKER: &str = "--be-a-worker";

#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// Unique within a run: the first half of the number of each of its operations.
    pub(crate) number: i64,
    /// The address of the database, through the proxy or pooler in front of it.
    pub(crate) url: String,
    pub(crate) log: PathBuf,
    pub(crate) seed: u64,
    /// Whether a pooler is in front of the server; bodies then use no prepared statements.
    pub(crate) is_pooled: bool,
    pub(crate) bug: Option<Bug>,
}

impl Assignment {
    pub(crate) fn arguments(&self) -> Vec<String> {
        vec![
            WORKER.to_owned(),
            self.number.to_string(),
            self.url.clone(),
            self.log.display().to_string(),
            self.seed.to_string(),
            self.is_pooled.to_string(),
            self.bug.map_or("none", Bug::name).to_owned(),
        ]
    }

    /// `None` if the program is not a worker.
    pub(crate) fn of_this_process() -> Option<Self> {
        let mut arguments = std::env::args().skip(1);
        if arguments.next()? != WORKER {
            return None;
        }
        let mut next = || arguments.next();
        Some(Self {
            number: next()?.parse().ok()?,
            url: next()?,
            log: next()?.into(),
            seed: next()?.parse().ok()?,
            is_pooled: next()?.parse().ok()?,
            bug: next()?.parse().ok(),
        })
    }
}
