//! Random walks of a hold beside the model's, step by step.

use super::{Ending, Hold, Inside, Moment, Phase};
use crate::rows::Stop;
use advisory_model::{
    HOLD_GRACE, HOLD_MARGIN, HOLD_TTL, HoldBug, HoldState, HoldStep, Phase as ModelPhase, RowState,
    Settled, Stop as ModelStop,
};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, advance};

const TICK: Duration = Duration::from_millis(500);
const WALKS: u64 = 2_000;
const STEPS: usize = 60;

/// What both say after a step.
#[derive(Debug, PartialEq, Eq)]
struct View {
    phase: ModelPhase,
    is_lost: bool,
    stop: Option<ModelStop>,
    is_expired: bool,
    return_in: Option<u8>,
}

fn view_of_model(state: &HoldState, bug: Option<HoldBug>) -> View {
    View {
        phase: state.phase,
        is_lost: state.is_lost,
        stop: state.stop(bug),
        is_expired: state.left == 0,
        return_in: state.return_in,
    }
}

/// The hold, and what the keeper and the program would remember of it.
struct Walk<'h> {
    hold: &'h Hold,
    ending: Option<Ending<'h>>,
    renewal: Option<(Moment, bool)>,
    settling: Option<Settled>,
    /// The instant of each transaction, by its number.
    since: HashMap<u8, Instant>,
}

impl Walk<'_> {
    fn view(&self) -> View {
        let left = |by: Instant| {
            let ticks = by.saturating_duration_since(Instant::now()).as_millis() / TICK.as_millis();
            u8::try_from(ticks).unwrap_or(u8::MAX)
        };
        View {
            phase: match self.hold.phase() {
                Phase::Held => ModelPhase::Held,
                Phase::InTransaction(since) => {
                    let mut all = self.since.iter();
                    let last = all.find(|(_, at)| **at == since);
                    ModelPhase::InTransaction(last.map_or(0, |(number, _)| *number))
                }
                Phase::RolledBack => ModelPhase::RolledBack,
                Phase::Ended => ModelPhase::Ended,
            },
            is_lost: self.hold.is_lost(),
            stop: self.hold.stop().map(|stop| match stop {
                Stop::Lost => ModelStop::Lost,
                Stop::Unanswered | Stop::Exceeded => ModelStop::Unanswered,
            }),
            is_expired: self.hold.is_expired(),
            return_in: self.hold.body_deadline().map(left),
        }
    }

    /// Does what the step means to a hold. `before` and `after` are the model's.
    async fn take(&mut self, step: HoldStep, before: &HoldState, after: &HoldState) {
        match step {
            HoldStep::Tick => advance(TICK).await,
            HoldStep::Renew => {
                let is_renewed = matches!(before.row, RowState::Ours(left) if left > 0);
                self.renewal = Some((Moment::now(), is_renewed));
            }
            HoldStep::RenewalAnswered => match self.renewal.take() {
                Some((sent, true)) => self.hold.renewed(sent, TICK * u32::from(HOLD_TTL)),
                _ => self.hold.lose(),
            },
            HoldStep::RenewalUnanswered => self.renewal = None,
            HoldStep::SendEnd => self.ending = Some(self.hold.ending()),
            HoldStep::EndAnswered if after.row == RowState::Ended && before.row != after.row => {
                if let Some(ending) = self.ending.take() {
                    ending.done(None);
                }
            }
            HoldStep::EndAnswered | HoldStep::EndUnanswered | HoldStep::EndNeverArrives => {
                drop(self.ending.take());
            }
            HoldStep::EndAnsweredInside => {
                // Two transactions of one hold have two instants.
                advance(Duration::from_nanos(1)).await;
                if let Some(ending) = self.ending.take() {
                    ending.done(Some(Inside::default()));
                }
                self.since.insert(after.transactions, Instant::now());
            }
            HoldStep::AskSettled => self.settling = before.last,
            HoldStep::SettledAnswered => {
                if let Some(settled) = self.settling.take()
                    && let Some(since) = self.since.get(&settled.transaction)
                {
                    self.hold.settle(*since, settled.is_committed);
                }
            }
            HoldStep::Finish(_) | HoldStep::Take => {}
        }
    }
}

/// A number that looks random.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The steps of a walk until both differ, or `None`.
async fn difference(mut seed: u64, bug: Option<HoldBug>) -> Option<(Vec<HoldStep>, View, View)> {
    let ttl = TICK * u32::from(HOLD_TTL);
    let hold = Hold::new(Moment::now().plus(ttl), ttl);
    let mut walk = Walk {
        hold: &hold,
        ending: None,
        renewal: None,
        settling: None,
        since: HashMap::new(),
    };
    let (mut state, mut steps) = (HoldState::granted(), Vec::new());
    for _ in 0..STEPS {
        let possible = HoldStep::ALL.into_iter();
        let possible = possible.filter_map(|step| Some((step, state.after(step, bug)?)));
        let possible: Vec<_> = possible.collect();
        let count = u64::try_from(possible.len()).ok()?;
        let chosen = usize::try_from(next(&mut seed).checked_rem(count)?).ok()?;
        let (step, after) = possible[chosen];
        walk.take(step, &state, &after).await;
        state = after;
        steps.push(step);
        let (model, real) = (view_of_model(&state, bug), walk.view());
        if model != real {
            return Some((steps, model, real));
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_hold_does_what_the_model_does() {
    assert_eq!(super::margin(TICK * 10), TICK * u32::from(HOLD_MARGIN));
    assert_eq!(super::grace(TICK * 10), TICK * u32::from(HOLD_GRACE));
    for seed in 0..WALKS {
        let difference = difference(seed, None).await;
        assert!(difference.is_none(), "seed {seed}: {difference:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_differs_from_each_broken_model() {
    for bug in HoldBug::ALL {
        let mut is_found = false;
        for seed in 0..WALKS {
            is_found |= difference(seed, Some(bug)).await.is_some();
            if is_found {
                break;
            }
        }
        assert!(is_found, "{bug:?}");
    }
}
