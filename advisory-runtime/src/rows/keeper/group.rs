//! The rows of one table, which the keeper renews together, and those of them that are being ended.

use super::tries::Tries;
use super::{Due, HeldRow, Keeper, Name, Rows, Task};
use crate::PoolError;
use crate::rows::answer::{Failure, Renewed, RowError, Settled};
use crate::rows::end::Ended;
use crate::rows::event::RowEvent;
use crate::rows::hold::Phase;
use crate::rows::moment::Moment;
use crate::rows::pause;
use crate::rows::reach::Times;
use diesel::result::Error as DieselError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The most rows that one statement renews.
const MAX_RENEWALS: usize = 1_000;

/// The rows of one name.
pub(super) struct Group<R: HeldRow> {
    /// Forgets the group with its last row.
    pub(super) keeper: Arc<Keeper>,
    pub(super) name: Name,
    pub(super) rows: Box<dyn Rows<R>>,
    slots: Mutex<Slots<R>>,
    /// The ends that wait: those that the keeper sends, and those that the caller's runtime sends.
    ends: [Mutex<Queue<R>>; 2],
    /// [`PendingEnd::submit`]. As a pointer it is compiled where rows are kept, which is this
    /// crate, and not again in each crate that ends one.
    pub(super) submit: fn(PendingEnd<R>, bool),
}

/// The renewal of a row by the keeper, until this value is dropped.
pub(crate) struct Renewal<R: HeldRow> {
    pub(super) group: Arc<Group<R>>,
    pub(super) id: u64,
    pub(super) row: R,
}

/// Called with the result when a row has ended.
pub(crate) type Reply<E> = Box<dyn FnOnce(Result<Ended, E>) + Send>;

impl<R: HeldRow> Drop for Renewal<R> {
    fn drop(&mut self) {
        if self.group.remove(self.id) {
            self.group.keeper.forget(&self.group.name);
        }
    }
}

/// A row that is being ended.
pub(super) struct PendingEnd<R: HeldRow> {
    pub(super) renewal: Renewal<R>,
    pub(super) end: R::End,
    pub(super) tries: Tries<R::Error>,
    /// The time of the keeper's first try.
    pub(super) since: Option<Instant>,
    /// `true` if it is ended by statements of its own.
    pub(super) is_alone: bool,
    /// `true` if the row was lost before the last statement.
    pub(super) was_lost: bool,
    /// `None` once it was called.
    pub(super) reply: Option<Reply<R::Error>>,
}

/// The ends of a group that no statement has been sent for; `None` if no task is sending any.
pub(super) type Queue<R> = Option<Vec<PendingEnd<R>>>;

struct Slots<R> {
    by_id: BTreeMap<u64, Slot<R>>,
    last_id: u64,
}

struct Slot<R> {
    row: R,
    /// The time of the next renewal; `None` while one is sent, and for a row that is not renewed.
    next: Option<Instant>,
}

impl<R: HeldRow> Group<R> {
    pub(super) fn new(
        keeper: Arc<Keeper>,
        name: Name,
        rows: Box<dyn Rows<R>>,
        submit: fn(PendingEnd<R>, bool),
    ) -> Self {
        let (by_id, last_id) = (BTreeMap::new(), 0);
        Self {
            keeper,
            name,
            rows,
            slots: Mutex::new(Slots { by_id, last_id }),
            ends: Default::default(),
            submit,
        }
    }

    pub(super) fn queue(&self, on_caller: bool) -> MutexGuard<'_, Queue<R>> {
        let queue = &self.ends[usize::from(on_caller)];
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots(&self) -> MutexGuard<'_, Slots<R>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds rows, and returns their ids in the same order.
    pub(super) fn insert(
        &self,
        rows: impl Iterator<Item = (R, Option<Instant>)>,
    ) -> std::ops::RangeInclusive<u64> {
        let mut slots = self.slots();
        let first = slots.last_id + 1;
        for (row, next) in rows {
            slots.last_id += 1;
            let id = slots.last_id;
            slots.by_id.insert(id, Slot { row, next });
        }
        first..=slots.last_id
    }

    /// Removes a row. Returns `true` if none is left.
    pub(super) fn remove(&self, id: u64) -> bool {
        let mut slots = self.slots();
        let removed = slots.by_id.remove(&id);
        let is_empty = slots.by_id.is_empty();
        drop(slots);
        // It may be the last clone of the row, whose drop is the user's code.
        drop(removed);
        is_empty
    }

    fn set_next(&self, id: u64, next: Option<Instant>) {
        if let Some(slot) = self.slots().by_id.get_mut(&id) {
            slot.next = next;
        }
    }

    /// Takes the rows that are due, or nearly so, out of the queue: those to renew, and those that
    /// were ended in a transaction.
    fn take_due(&self, now: Instant) -> [Vec<(u64, R)>; 2] {
        if self.next_due().is_none_or(|next| next > now) {
            return Default::default();
        }
        let (mut renewed, mut in_transaction, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut slots = self.slots();
        for (id, slot) in &mut slots.by_id {
            let soon = now + slot.row.every() / 4;
            if slot.next.is_none_or(|next| next > soon) {
                continue;
            }
            slot.next = None;
            let hold = slot.row.hold();
            match hold.phase() {
                Phase::Ended => {}
                // The answer to its commit may never come.
                Phase::InTransaction(_) if hold.body_deadline().is_some_and(|by| now >= by) => {
                    hold.lose();
                    lost.push(slot.row.clone());
                }
                Phase::InTransaction(_) => in_transaction.push((*id, slot.row.clone())),
                _ if hold.is_lost() => {}
                _ if hold.is_expired() => {
                    hold.lose();
                    lost.push(slot.row.clone());
                }
                _ => renewed.push((*id, slot.row.clone())),
            }
        }
        drop(slots);
        for row in lost {
            row.tell(RowEvent::Lost);
        }
        [renewed, in_transaction]
    }

    fn times(rows: &[(u64, R)]) -> Times {
        let now = Instant::now();
        let every = rows.iter().map(|(_, row)| row.every()).min();
        let expires = rows.iter().map(|(_, row)| row.hold().expires()).min();
        let left = expires.map(|expires| expires.saturating_duration_since(now));
        Times::new(every.unwrap_or_default(), left.unwrap_or_default())
    }

    /// Renews rows by one statement, or by several if the server refuses one because of a row.
    async fn renew(self: Arc<Self>, rows: Vec<(u64, R)>) {
        let mut batches = vec![rows];
        while let Some(mut batch) = batches.pop() {
            let sent = Moment::now();
            let renewed = self.rows.renew(rows_of(&batch), Self::times(&batch)).await;
            let error = match renewed {
                Ok(answers) if answers.len() == batch.len() => {
                    for ((id, row), answer) in batch.into_iter().zip(answers) {
                        self.renewed(id, &row, sent, answer);
                    }
                    continue;
                }
                Ok(_) => R::Error::from(PoolError::new("an answer has another number of rows")),
                Err(error) => error,
            };
            let is_refused = matches!(error.failure(), Failure::Refused | Failure::Final);
            if batch.len() > 1 && is_refused {
                let other = batch.split_off(batch.len() / 2);
                batches.extend([batch, other]);
                continue;
            }
            for (id, row) in &batch {
                row.tell(RowEvent::RenewalFailed(&error));
                self.set_next(*id, Some(Instant::now() + pause(row.every())));
            }
            // Diesel's errors cannot be cloned: the first row gets this one, and the others its
            // text.
            let text = error.to_string();
            let mut reason = Some(error.into());
            for (_, row) in batch {
                let copy = || DieselError::QueryBuilderError(text.clone().into());
                row.hold()
                    .record_renewal_error(reason.take().unwrap_or_else(copy));
            }
        }
        self.keeper.wake.notify_one();
    }

    fn renewed(&self, id: u64, row: &R, sent: Moment, answer: Renewed) {
        let (hold, every) = (row.hold(), row.every());
        let next = match answer {
            Renewed::For(lasts) => {
                hold.renewed(sent, lasts);
                row.tell(RowEvent::Renewed);
                Some(hold.next_renewal(sent.steady + every, every))
            }
            Renewed::Busy => Some(Instant::now() + pause(every)),
            // A statement of the program's own may have ended it, whose answer comes later.
            Renewed::Gone if matches!(hold.phase(), Phase::InTransaction(_)) => {
                Some(Instant::now())
            }
            Renewed::Gone => {
                hold.lose();
                if hold.is_lost() {
                    row.tell(RowEvent::Lost);
                }
                None
            }
        };
        self.set_next(id, next);
    }

    /// Finds out if the transactions that ended rows were committed.
    async fn settle(self: Arc<Self>, rows: Vec<(u64, R)>) {
        let phases: Vec<_> = rows.iter().map(|(_, row)| row.hold().phase()).collect();
        let times = Self::times(&rows).of_settling();
        let settled = self.rows.settled(rows_of(&rows), times).await;
        let now = Instant::now();
        let answers = settled.unwrap_or_default().into_iter().map(Some);
        let answers = answers.chain(std::iter::repeat(None));
        for (((id, row), phase), answer) in rows.iter().zip(phases).zip(answers) {
            let next = match (answer, phase) {
                (Some(Settled::Committed), Phase::InTransaction(since)) => {
                    row.hold().settle(since, true);
                    // Another transaction of the program's may have ended it since the question.
                    matches!(row.hold().phase(), Phase::InTransaction(_)).then_some(now)
                }
                (Some(Settled::RolledBack), Phase::InTransaction(since)) => {
                    row.hold().settle(since, false);
                    Some(now)
                }
                _ => Some(now + pause(row.every())),
            };
            self.set_next(*id, next);
        }
        self.keeper.wake.notify_one();
    }

    /// Ends a row, unless a transaction of the program's own has done so.
    pub(super) async fn end(
        &self,
        row: R,
        end: R::End,
        times: Times,
        on_caller: bool,
    ) -> Result<bool, R::Error> {
        let hold = row.hold();
        if let Phase::InTransaction(since) = hold.phase() {
            let asked = self.rows.settled(vec![row.clone()], times.of_settling());
            match asked.await?.first() {
                Some(Settled::Committed) => hold.settle(since, true),
                Some(Settled::RolledBack) => hold.settle(since, false),
                _ => {
                    return Err(PoolError::new("the transaction that ended the row is open").into());
                }
            }
        }
        if hold.phase() == Phase::Ended {
            return Ok(true);
        }
        self.rows.end(row, end, times, on_caller).await
    }
}

fn rows_of<R: Clone>(rows: &[(u64, R)]) -> Vec<R> {
    rows.iter().map(|(_, row)| row.clone()).collect()
}

impl<R: HeldRow> Due for Group<R> {
    fn is_empty(&self) -> bool {
        self.slots().by_id.is_empty()
    }

    fn next_due(&self) -> Option<Instant> {
        let slots = self.slots();
        slots.by_id.values().filter_map(|slot| slot.next).min()
    }

    fn renew_due(self: Arc<Self>, now: Instant) {
        let [mut held, in_transaction] = self.take_due(now);
        while !held.is_empty() {
            let batch = held.split_off(held.len().saturating_sub(MAX_RENEWALS));
            let renew: Task = Box::pin(Arc::clone(&self).renew(batch));
            drop(tokio::spawn(renew));
        }
        if !in_transaction.is_empty() {
            let settle: Task = Box::pin(self.settle(in_transaction));
            drop(tokio::spawn(settle));
        }
    }
}
