//! One held row, in the words of `rows/hold.rs`: what its process knows, and what the server has.

mod bug;
mod search;

pub use bug::{HoldBug, HoldProperty};
pub use search::{HoldChecked, check_hold};

/// How long a grant lasts, in ticks.
pub const HOLD_TTL: u8 = 10;
/// How long before the expiry the body is stopped.
pub const HOLD_MARGIN: u8 = 1;
/// How long the body may go on after it has ended the row in a transaction.
pub const HOLD_GRACE: u8 = 20;

/// How far the process is with ending its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Held,
    /// In a transaction, which may still be rolled back. Each has its number.
    InTransaction(u8),
    /// That transaction was rolled back: held as before.
    RolledBack,
    Ended,
}

/// The reason why the body is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The row is lost, or about to expire.
    Lost,
    /// The statement that ended the row was not answered in time.
    Unanswered,
}

/// The row on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowState {
    /// Held by this process, for this many ticks.
    Ours(u8),
    /// Ended by this process.
    Ended,
    Taken,
}

/// The server's answer about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settled {
    pub transaction: u8,
    pub is_committed: bool,
}

/// The row of one process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldState {
    pub phase: Phase,
    /// The process knows that the row is lost.
    pub is_lost: bool,
    /// For how long it relies on the row.
    pub left: u8,
    /// A statement that ends the row is on its way.
    pub is_ending: bool,
    /// Until its body must have returned.
    pub return_in: Option<u8>,
    /// A renewal without its answer so far: the time since it was sent, and true if it renewed the
    /// row.
    pub renewal: Option<(u8, bool)>,
    /// An answer about a transaction, on its way.
    pub settling: Option<Settled>,
    pub row: RowState,
    /// The open transaction that has ended the row.
    pub open: Option<u8>,
    /// How the last one has ended.
    pub last: Option<Settled>,
    pub transactions: u8,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldStep {
    /// The clocks advance.
    Tick,
    /// A renewal is sent, and arrives.
    Renew,
    /// Its answer arrives.
    RenewalAnswered,
    /// Its answer is lost.
    RenewalUnanswered,
    /// A statement that ends the row is sent.
    SendEnd,
    /// It is executed and answered.
    EndAnswered,
    /// It is executed in an open transaction, and answered.
    EndAnsweredInside,
    /// It is executed, and its answer is lost.
    EndUnanswered,
    /// It never arrives.
    EndNeverArrives,
    /// The transaction commits or rolls back, and the process learns it later.
    Finish(bool),
    /// The process asks how the transaction has ended.
    AskSettled,
    /// The answer arrives.
    SettledAnswered,
    /// Somebody else takes the expired row.
    Take,
}

impl HoldStep {
    pub const ALL: [Self; 14] = [
        Self::Tick,
        Self::Renew,
        Self::RenewalAnswered,
        Self::RenewalUnanswered,
        Self::SendEnd,
        Self::EndAnswered,
        Self::EndAnsweredInside,
        Self::EndUnanswered,
        Self::EndNeverArrives,
        Self::Finish(true),
        Self::Finish(false),
        Self::AskSettled,
        Self::SettledAnswered,
        Self::Take,
    ];
}

/// How many transactions of one hold may end its row.
const TRANSACTIONS: u8 = 2;

impl HoldState {
    /// Just granted.
    #[must_use]
    pub const fn granted() -> Self {
        Self {
            phase: Phase::Held,
            is_lost: false,
            left: HOLD_TTL,
            is_ending: false,
            return_in: None,
            renewal: None,
            settling: None,
            row: RowState::Ours(HOLD_TTL),
            open: None,
            last: None,
            transactions: 0,
        }
    }

    const fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::RolledBack)
    }

    /// Returns why the body is stopped, if it is.
    #[must_use]
    pub fn stop(&self, bug: Option<HoldBug>) -> Option<Stop> {
        let margin = if bug == Some(HoldBug::NoMargin) {
            0
        } else {
            HOLD_MARGIN
        };
        let is_late = self.left <= margin;
        if self.is_held() {
            let waits = self.is_ending && bug != Some(HoldBug::ImpatientEnd);
            return if waits {
                is_late.then_some(Stop::Unanswered)
            } else {
                (self.is_lost || is_late).then_some(Stop::Lost)
            };
        }
        (self.return_in == Some(0)).then_some(Stop::Unanswered)
    }

    /// The state after a step, or `None` if it cannot happen now.
    #[must_use]
    pub fn after(mut self, step: HoldStep, bug: Option<HoldBug>) -> Option<Self> {
        let is_valid = matches!(self.row, RowState::Ours(left) if left > 0);
        match step {
            HoldStep::Tick => self.tick(),
            HoldStep::Renew => {
                // While a transaction has the row locked, it is busy.
                if self.renewal.is_some() || self.open.is_some() {
                    return None;
                }
                if is_valid {
                    self.row = RowState::Ours(HOLD_TTL);
                }
                self.renewal = Some((0, is_valid));
            }
            HoldStep::RenewalAnswered => {
                let (age, is_renewed) = self.renewal.take()?;
                if is_renewed {
                    let age = if bug == Some(HoldBug::LateClock) {
                        0
                    } else {
                        age
                    };
                    self.left = self.left.max(HOLD_TTL - age.min(HOLD_TTL));
                } else {
                    self.is_lost |= self.phase != Phase::Ended || bug == Some(HoldBug::LateLoss);
                }
            }
            HoldStep::RenewalUnanswered => drop(self.renewal.take()?),
            HoldStep::SendEnd => {
                if self.is_ending || !self.is_held() {
                    return None;
                }
                self.is_ending = true;
                if bug == Some(HoldBug::EarlyEnd) {
                    self.phase = Phase::Ended;
                }
            }
            HoldStep::EndAnswered | HoldStep::EndUnanswered | HoldStep::EndNeverArrives => {
                if !self.is_ending || self.open.is_some() {
                    return None;
                }
                self.is_ending = false;
                if step != HoldStep::EndNeverArrives && is_valid {
                    self.row = RowState::Ended;
                    if step == HoldStep::EndAnswered {
                        (self.phase, self.return_in) = (Phase::Ended, None);
                    }
                }
            }
            HoldStep::EndAnsweredInside => {
                let is_free = self.open.is_none() && self.transactions < TRANSACTIONS;
                if !self.is_ending || !is_valid || !is_free {
                    return None;
                }
                self.is_ending = false;
                self.transactions += 1;
                self.open = Some(self.transactions);
                self.phase = Phase::InTransaction(self.transactions);
                self.return_in = Some(HOLD_GRACE).filter(|_| bug != Some(HoldBug::NoLimit));
            }
            HoldStep::Finish(is_committed) => {
                let transaction = self.open.take()?;
                self.last = Some(Settled {
                    transaction,
                    is_committed,
                });
                if is_committed {
                    self.row = RowState::Ended;
                }
            }
            HoldStep::AskSettled => {
                if self.settling.is_some() {
                    return None;
                }
                self.settling = Some(self.last?);
            }
            HoldStep::SettledAnswered => {
                let settled = self.settling.take()?;
                self.settle(settled, bug);
            }
            HoldStep::Take => {
                if self.row != RowState::Ours(0) || self.open.is_some() {
                    return None;
                }
                self.row = RowState::Taken;
            }
        }
        Some(self)
    }

    fn tick(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.return_in = self.return_in.map(|left| left.saturating_sub(1));
        if let RowState::Ours(left) = &mut self.row {
            *left = left.saturating_sub(1);
        }
        if let Some((age, _)) = &mut self.renewal {
            *age = age.saturating_add(1).min(HOLD_TTL);
        }
    }

    fn settle(&mut self, settled: Settled, bug: Option<HoldBug>) {
        let Phase::InTransaction(transaction) = self.phase else {
            return;
        };
        if transaction != settled.transaction && bug != Some(HoldBug::OldAnswer) {
            return;
        }
        if settled.is_committed || bug == Some(HoldBug::EndedByRollback) {
            self.phase = Phase::Ended;
        } else {
            (self.phase, self.return_in) = (Phase::RolledBack, None);
        }
        // A renewal that comes between the commit and its answer is refused.
        self.is_lost &= !settled.is_committed || bug == Some(HoldBug::LostByCommit);
    }
}
