//! Where the claims of a worker begin in the order.

use crate::claim::sql::FromPosition;
use crate::claim::table::{Claim, MaybePer};
use crate::claim::{Claimed, Error};
use crate::error::is_connection_lost;
use std::time::Duration;
use tokio::time::Instant;

/// If two claims in a row take longer, the second one also asks for the position of its last row,
/// so that the next one can begin there. That costs little compared to the claims.
pub(super) const SLOW: Duration = Duration::from_millis(2);

/// What a worker asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(super) limit: u32,
    /// Without rows whose earlier claim has expired.
    pub(super) is_fresh: bool,
    pub(super) from: Option<FromPosition>,
    pub(super) asks_position: bool,
}

/// What it gets.
pub(crate) struct Taken<T> {
    pub(crate) claimed: Vec<Claimed<T>>,
    /// That of the last row, if the claim was slow and there may be more.
    pub(super) position: Option<String>,
    pub(super) is_slow: bool,
    pub(super) may_be_more: bool,
}

/// Where claims begin in the order: at the first row, or where an earlier claim ended. Then the
/// rows before that one are found when there are no more after it, and at the latest after the time
/// between two looks.
pub(super) struct Start {
    /// And since when claims do not begin at the first row.
    position: Option<(FromPosition, Instant)>,
    poll: Duration,
    can_advance: bool,
    /// Whether the last claim was slow, and there may be more rows.
    is_slow: bool,
}

impl Start {
    pub(super) fn new<T: Claim>(poll: Duration) -> Self {
        Self {
            position: None,
            poll,
            can_advance: T::Per::COLUMN.is_none() && FromPosition::is_possible::<T>(),
            is_slow: false,
        }
    }

    pub(super) fn ask(&mut self, limit: u32, is_fresh: bool) -> Asked {
        self.position
            .take_if(|(_, since)| since.elapsed() >= self.poll);
        Asked {
            limit,
            is_fresh,
            from: self.position.as_ref().map(|(from, _)| from.clone()),
            asks_position: self.can_advance && self.is_slow,
        }
    }

    /// The claimed rows; the next claim begins after them, if there may be more.
    pub(super) fn record<T: Claim>(
        &mut self,
        asked: &Asked,
        taken: Result<Taken<T>, Error>,
    ) -> Result<Vec<Claimed<T>>, Error> {
        let since = self.position.take().map(|(_, since)| since);
        self.is_slow = false;
        match &taken {
            Ok(taken) if taken.may_be_more => {
                self.is_slow = taken.is_slow;
                let position = taken.position.clone().map(FromPosition::new::<T>);
                let position = position.or_else(|| asked.from.clone());
                let since = since.unwrap_or_else(Instant::now);
                self.position = position.map(|position| (position, since));
            }
            // The type of a column may have no order in `pg_catalog`.
            Err(Error::Database(error)) if since.is_some() && !is_connection_lost(error) => {
                self.can_advance = false;
            }
            _ => {}
        }
        Ok(taken?.claimed)
    }
}
