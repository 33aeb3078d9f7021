//! The renewal of a row, and how the row ends.
//!
//! Every end takes one path. It is sent once on the caller's runtime, and if that does not reach
//! the server, by the keeper until the row expires. Where the table's rows are ended together, an
//! end that finds a statement on its way goes with the next one, and any other is sent at once. A
//! row that a statement for many has not ended, because it is locked, lost or refuses its end, is
//! ended by statements of its own, so that no row holds up its neighbours.

use super::tries::Tries;
use super::{Group, HeldRow, Task};
use crate::PoolError;
use crate::rows::answer::{Failure, RowError};
use crate::rows::end::Ended;
use crate::rows::event::RowEvent;
use crate::rows::hold::Phase;
use crate::rows::reach::{Times, connection_lost};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// The most rows that one statement ends.
const MOST: usize = 1_000;
/// The time after which the next statement no longer waits for the one that was sent.
const LATE: Duration = Duration::from_millis(50);

/// The renewal of a row by the keeper, until this value is dropped.
pub(crate) struct Renewal<R: HeldRow> {
    pub(super) group: Arc<Group<R>>,
    pub(super) id: u64,
    pub(super) row: R,
}

/// Called with the result when a row has ended.
pub(crate) type Reply<E> = Box<dyn FnOnce(Result<Ended, E>) + Send>;

impl<R: HeldRow> Renewal<R> {
    /// Ends the row. If this future is dropped, the row is ended all the same.
    pub(crate) async fn end(self, end: R::End) -> Result<Ended, R::Error> {
        let (reply, ended) = oneshot::channel();
        self.end_then(end, Box::new(|ended| drop(reply.send(ended))));
        let ended = ended.await;
        ended.unwrap_or_else(|gone| Err(PoolError::new(gone).into()))
    }

    /// Ends the row, and calls `reply` with the result.
    pub(crate) fn end_then(self, end: R::End, reply: Reply<R::Error>) {
        self.end_at(true, end, reply);
    }

    /// Ends the row on the keeper, and drops `alive` then.
    pub(crate) fn end_later(self, end: R::End, alive: impl Send + 'static) {
        self.end_at(false, end, Box::new(move |_| drop(alive)));
    }

    fn end_at(self, is_here: bool, end: R::End, reply: Reply<R::Error>) {
        let end = PendingEnd {
            tries: Tries::new(self.row.hold()),
            is_alone: !self.group.rows.gathers(),
            renewal: self,
            end,
            since: None,
            was_lost: false,
            reply: Some(reply),
        };
        (end.renewal.group.submit)(end, is_here);
    }
}

impl<R: HeldRow> Drop for Renewal<R> {
    fn drop(&mut self) {
        if self.group.remove(self.id) {
            self.group.keeper.forget(&self.group.name);
        }
    }
}

/// A row that is being ended.
pub(super) struct PendingEnd<R: HeldRow> {
    renewal: Renewal<R>,
    end: R::End,
    tries: Tries<R::Error>,
    /// The time of the keeper's first try.
    since: Option<Instant>,
    /// `true` if it is ended by statements of its own.
    is_alone: bool,
    /// `true` if the row was lost before the last statement.
    was_lost: bool,
    /// `None` once it was called.
    reply: Option<Reply<R::Error>>,
}

impl<R: HeldRow> PendingEnd<R> {
    fn phase(&self) -> Phase {
        self.renewal.row.hold().phase()
    }

    /// Sends it, or leaves it to the sender that waits for an answer.
    pub(super) fn submit(mut self, mut is_here: bool) {
        let phase = self.phase();
        if phase == Phase::Ended {
            return self.reply(Ok(Ended::Done));
        }
        // That transaction decides.
        let is_inside = matches!(phase, Phase::InTransaction(_));
        if is_inside || !self.renewal.group.rows.sends_here() || Handle::try_current().is_err() {
            is_here = false;
        }
        if !is_here {
            self.since.get_or_insert_with(Instant::now);
        }
        let group = Arc::clone(&self.renewal.group);
        if is_inside || self.is_alone {
            return Sender::start(group, is_here, Some(self));
        }
        let mut queue = group.queue(is_here);
        if let Some(waiting) = &mut *queue {
            waiting.push(self);
        } else {
            *queue = Some(vec![self]);
            drop(queue);
            Sender::start(group, is_here, None);
        }
    }

    /// Calls `reply`, and catches its panic.
    fn reply(&mut self, ended: Result<Ended, R::Error>) {
        if let Some(reply) = self.reply.take() {
            drop(catch_unwind(AssertUnwindSafe(|| reply(ended))));
        }
    }

    fn times(&self, is_here: bool) -> Times {
        let times = self.tries.times();
        if is_here {
            Times::new(self.renewal.row.every(), times.answer * 2)
        } else {
            times
        }
    }

    fn answered(mut self, is_here: bool, answer: Result<bool, R::Error>) {
        let row = &self.renewal.row;
        match &answer {
            Ok(true) if !self.was_lost => row.tell(RowEvent::Ended {
                end: R::shown_end(&self.end),
                held: row.hold().age(),
            }),
            Ok(_) => {}
            Err(error) => row.tell(RowEvent::EndFailed(error)),
        }
        let is_sent = !matches!(&answer, Err(error) if error.failure() == Failure::Unreachable);
        if is_here && !is_sent {
            // The keeper has connections of its own, also for a row that has expired by now.
            return self.submit(false);
        }
        let again = match self.tries.after(answer) {
            ControlFlow::Break(ended) => return self.reply(ended),
            ControlFlow::Continue(again) => again,
        };
        let limit = self.since.zip(R::caller_waits(&self.end));
        if limit.is_some_and(|(since, limit)| since.elapsed() >= limit) {
            let late = PoolError::new("the server was not reached, and is tried again");
            self.reply(Err(late.into()));
        }
        let keeper = Arc::clone(&self.renewal.group.keeper);
        keeper.spawn(Box::pin(async move {
            sleep_until(again).await;
            self.submit(false);
        }));
    }
}

impl<R: HeldRow> Group<R> {
    fn queue(&self, is_here: bool) -> MutexGuard<'_, Queue<R>> {
        let queue = &self.ends[usize::from(is_here)];
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ends of a group that wait to be sent from one place; `None` if there is no sender.
pub(super) type Queue<R> = Option<Vec<PendingEnd<R>>>;

/// Sends the ends that wait, a batch at a time, or one end alone.
struct Sender<R: HeldRow> {
    group: Arc<Group<R>>,
    /// `true` if it sends on the caller's runtime, `false` if on the keeper's.
    is_here: bool,
    /// `true` while it takes ends from the queue.
    is_of_queue: bool,
    /// The ends that were sent and not answered.
    batch: Vec<PendingEnd<R>>,
}

impl<R: HeldRow> Sender<R> {
    /// Starts the sender of the queue, or one of a single end.
    fn start(group: Arc<Group<R>>, is_here: bool, alone: Option<PendingEnd<R>>) {
        let keeper = Arc::clone(&group.keeper);
        let sender = Self {
            group,
            is_here,
            is_of_queue: alone.is_none(),
            batch: alone.into_iter().collect(),
        };
        let task: Task = Box::pin(sender.run());
        if is_here {
            drop(tokio::spawn(task));
        } else {
            keeper.spawn(task);
        }
    }

    async fn run(mut self) {
        while self.take_batch() {
            let (times, is_here) = (self.times(), self.is_here);
            let mut ends = Vec::new();
            for end in &mut self.batch {
                end.was_lost = end.renewal.row.hold().is_lost();
                ends.push((end.renewal.row.clone(), end.end.clone()));
            }
            let group = Arc::clone(&self.group);
            if ends.len() > 1 {
                let answers = group.rows.end_all(ends, times, is_here);
                let answers = self.unless_late(answers).await;
                self.answered(answers);
            } else if let Some((row, end)) = ends.pop() {
                let answer = pin!(group.end(row, end, times, is_here));
                let answer = self.unless_late(answer).await;
                if let Some(end) = self.batch.pop() {
                    end.answered(self.is_here, answer);
                }
            }
        }
    }

    /// Takes ends of the queue, unless it has some to send. Returns `true` if it has any then.
    fn take_batch(&mut self) -> bool {
        while self.is_of_queue && self.batch.is_empty() {
            let mut queue = self.group.queue(self.is_here);
            let Some(waiting) = queue.as_mut().filter(|waiting| !waiting.is_empty()) else {
                (*queue, self.is_of_queue) = (None, false);
                break;
            };
            let count = waiting.len().min(MOST);
            let batch: Vec<_> = waiting.drain(..count).collect();
            drop(queue);
            for end in batch {
                match end.phase() {
                    Phase::Ended | Phase::InTransaction(_) => end.submit(self.is_here),
                    _ => self.batch.push(end),
                }
            }
        }
        !self.batch.is_empty()
    }

    fn times(&self) -> Times {
        let times = self.batch.iter().map(|end| end.times(self.is_here));
        let shortest = times.reduce(|one, other| Times {
            soon: one.soon.min(other.soon),
            answer: one.answer.min(other.answer),
        });
        shortest.unwrap_or_else(|| Times::new(LATE, LATE))
    }

    /// Waits for the answer. If it is late, the next ends no longer wait for it.
    async fn unless_late<F: Future + Unpin>(&mut self, mut answer: F) -> F::Output {
        if self.is_of_queue {
            if let Ok(answer) = timeout(LATE, &mut answer).await {
                return answer;
            }
            self.start_next();
        }
        answer.await
    }

    /// Lets another sender take over the ends that wait.
    fn start_next(&mut self) {
        self.is_of_queue = false;
        let mut queue = self.group.queue(self.is_here);
        if queue.as_ref().is_none_or(Vec::is_empty) {
            *queue = None;
        } else {
            drop(queue);
            Self::start(Arc::clone(&self.group), self.is_here, None);
        }
    }

    fn answered(&mut self, answers: Result<Vec<bool>, R::Error>) {
        let mut answers = answers.map(Vec::into_iter);
        for mut end in std::mem::take(&mut self.batch) {
            let answer = match &mut answers {
                Ok(answers) => answers.next().filter(|is_ended| *is_ended).map(Ok),
                Err(error) => copy(error).map(Err),
            };
            if let Some(answer) = answer {
                end.answered(self.is_here, answer);
            } else {
                // A statement of its own ends it, or says why not.
                end.is_alone = true;
                end.submit(false);
            }
        }
    }
}

impl<R: HeldRow> Drop for Sender<R> {
    /// Runs when the runtime shuts down.
    fn drop(&mut self) {
        let mut ends = std::mem::take(&mut self.batch);
        if self.is_of_queue {
            let waiting = self.group.queue(self.is_here).take();
            ends.extend(waiting.unwrap_or_default());
        }
        // Without the keeper the rows expire.
        if self.is_here {
            for end in ends {
                end.submit(false);
            }
        }
    }
}

/// An error that says the same about the next try; `None` for a refusal, which can be another one
/// for each row.
fn copy<E: RowError>(error: &E) -> Option<E> {
    match error.failure() {
        Failure::Unreachable => Some(PoolError::new(error.to_string()).into()),
        Failure::Unanswered => Some(E::of_database(connection_lost(error.to_string()))),
        Failure::Refused | Failure::Final => None,
    }
}
