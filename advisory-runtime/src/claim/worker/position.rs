//! The position in the order at which the claims of a worker begin, and the arguments and the
//! answer of a claim.

use crate::claim::optional_column::MaybePer;
use crate::claim::sql::RowType;
use crate::claim::table::Claim;
use crate::claim::{Claimed, Error};
use crate::error::is_connection_lost;
use std::time::Duration;
use tokio::time::Instant;

/// The time after which a claim is slow. The second slow claim in a row also reads the position of
/// its last row, so that the next claim can begin there. That costs little compared to the claims.
pub(super) const SLOW: Duration = Duration::from_millis(2);

#[derive(Clone, Debug)]
pub(crate) struct ClaimArgs {
    pub(super) limit: u32,
    /// Skips rows with an expired claim.
    pub(super) skips_expired: bool,
    /// The position at which it begins; `None` for the first row.
    pub(super) position: Option<String>,
    /// Reads the position of the last row, if the claim is slow.
    pub(super) reads_position: bool,
}

pub(crate) struct ClaimAnswer<T> {
    pub(crate) claimed: Vec<Claimed<T>>,
    /// The position of the last row, if the claim reads it, was slow, and there may be more.
    pub(super) position: Option<String>,
    pub(super) is_slow: bool,
    pub(super) may_be_more: bool,
}

/// The position at which claims begin: the first row, or the one where an earlier claim ended.
/// Claims begin at the first row again when no rows are left after the position, and at the latest
/// after the worker's time between polls.
pub(super) struct StartPosition {
    /// The position, and the time since which claims have not begun at the first row.
    position: Option<(String, Instant)>,
    poll: Duration,
    can_advance: bool,
    /// `true` if the last claim was slow and there may be more rows.
    is_slow: bool,
}

impl StartPosition {
    pub(super) fn new<T: Claim>(poll: Duration) -> Self {
        Self {
            position: None,
            poll,
            can_advance: T::Per::COLUMN.is_none() && RowType::of::<T>().is_ascending(),
            is_slow: false,
        }
    }

    pub(super) fn claim_args(&mut self, limit: u32, skips_expired: bool) -> ClaimArgs {
        self.position
            .take_if(|(_, since)| since.elapsed() >= self.poll);
        ClaimArgs {
            limit,
            skips_expired,
            position: self.position.as_ref().map(|(position, _)| position.clone()),
            reads_position: self.can_advance && self.is_slow,
        }
    }

    /// Returns the claimed rows. The next claim begins after them if there may be more.
    pub(super) fn record<T: Claim>(
        &mut self,
        args: &ClaimArgs,
        answer: Result<ClaimAnswer<T>, Error>,
    ) -> Result<Vec<Claimed<T>>, Error> {
        let since = self.position.take().map(|(_, since)| since);
        self.is_slow = false;
        match &answer {
            Ok(answer) if answer.may_be_more => {
                self.is_slow = answer.is_slow;
                let position = answer.position.clone().or_else(|| args.position.clone());
                let since = since.unwrap_or_else(Instant::now);
                self.position = position.map(|position| (position, since));
            }
            // The type of a column may have no order in `pg_catalog`.
            Err(Error::Database(error)) if since.is_some() && !is_connection_lost(error) => {
                self.can_advance = false;
            }
            _ => {}
        }
        Ok(answer?.claimed)
    }
}
