//! How rows end.
//!
//! An end is sent once on the caller's runtime. If that does not reach the server, and for the ends
//! of dropped calls, the keeper sends it until the row expires. Where the rows of a table are ended
//! together, ends are queued while a statement is in flight and sent as one batch after it;
//! otherwise an end is sent at once. A row that a batch has not ended, because it is locked, lost
//! or refuses its end, is ended by statements of its own, so that no row holds up its neighbours.

use super::group::{Group, PendingEnd, Renewal, Reply};
use super::tries::Tries;
use super::{HeldRow, Task};
use crate::PoolError;
use crate::rows::answer::{Failure, RowError};
use crate::rows::end::Ended;
use crate::rows::event::RowEvent;
use crate::rows::hold::Phase;
use crate::rows::reach::{Times, connection_lost};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// The most rows that one statement ends.
const MAX_ENDS: usize = 1_000;
/// The time after which the next statement no longer waits for the one that was sent.
const LATE: Duration = Duration::from_millis(50);

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

    fn end_at(self, on_caller: bool, end: R::End, reply: Reply<R::Error>) {
        let end = PendingEnd {
            tries: Tries::new(self.row.hold()),
            is_alone: !self.group.rows.batches_ends(),
            renewal: self,
            end,
            since: None,
            was_lost: false,
            reply: Some(reply),
        };
        (end.renewal.group.submit)(end, on_caller);
    }
}

impl<R: HeldRow> PendingEnd<R> {
    fn phase(&self) -> Phase {
        self.renewal.row.hold().phase()
    }

    /// Sends it, or leaves it to the sender that waits for an answer.
    pub(super) fn submit(mut self, mut on_caller: bool) {
        let phase = self.phase();
        if phase == Phase::Ended {
            return self.reply(Ok(Ended::Done));
        }
        // That transaction decides.
        let is_inside = matches!(phase, Phase::InTransaction(_));
        if is_inside || !self.renewal.group.rows.sends_on_caller() || Handle::try_current().is_err()
        {
            on_caller = false;
        }
        if !on_caller {
            self.since.get_or_insert_with(Instant::now);
        }
        let group = Arc::clone(&self.renewal.group);
        if is_inside || self.is_alone {
            return Sender::start(group, on_caller, Some(self));
        }
        let mut queue = group.queue(on_caller);
        if let Some(waiting) = &mut *queue {
            waiting.push(self);
        } else {
            *queue = Some(vec![self]);
            drop(queue);
            Sender::start(group, on_caller, None);
        }
    }

    /// Calls `reply`, and catches its panic.
    fn reply(&mut self, ended: Result<Ended, R::Error>) {
        if let Some(reply) = self.reply.take() {
            drop(catch_unwind(AssertUnwindSafe(|| reply(ended))));
        }
    }

    fn times(&self, on_caller: bool) -> Times {
        let times = self.tries.times();
        if on_caller {
            Times::new(self.renewal.row.every(), times.answer * 2)
        } else {
            times
        }
    }

    fn answered(mut self, on_caller: bool, answer: Result<bool, R::Error>) {
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
        if on_caller && !is_sent {
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

/// Sends the ends that wait, a batch at a time, or one end alone.
struct Sender<R: HeldRow> {
    group: Arc<Group<R>>,
    /// `true` if it sends on the caller's runtime, `false` if on the keeper's.
    on_caller: bool,
    /// `true` while it takes ends from the queue.
    is_of_queue: bool,
    /// The ends that were sent and not answered.
    batch: Vec<PendingEnd<R>>,
}

impl<R: HeldRow> Sender<R> {
    /// Starts the sender of the queue, or one of a single end.
    fn start(group: Arc<Group<R>>, on_caller: bool, alone: Option<PendingEnd<R>>) {
        let keeper = Arc::clone(&group.keeper);
        let sender = Self {
            group,
            on_caller,
            is_of_queue: alone.is_none(),
            batch: alone.into_iter().collect(),
        };
        let task: Task = Box::pin(sender.run());
        if on_caller {
            drop(tokio::spawn(task));
        } else {
            keeper.spawn(task);
        }
    }

    async fn run(mut self) {
        while self.take_batch() {
            let (times, on_caller) = (self.times(), self.on_caller);
            let mut ends = Vec::new();
            for end in &mut self.batch {
                end.was_lost = end.renewal.row.hold().is_lost();
                ends.push((end.renewal.row.clone(), end.end.clone()));
            }
            let group = Arc::clone(&self.group);
            if ends.len() > 1 {
                let answers = group.rows.end_all(ends, times, on_caller);
                let answers = self.unless_late(answers).await;
                self.answered(answers);
            } else if let Some((row, end)) = ends.pop() {
                let answer = pin!(group.end(row, end, times, on_caller));
                let answer = self.unless_late(answer).await;
                if let Some(end) = self.batch.pop() {
                    end.answered(self.on_caller, answer);
                }
            }
        }
    }

    /// Takes ends of the queue, unless it has some to send. Returns `true` if it has any then.
    fn take_batch(&mut self) -> bool {
        while self.is_of_queue && self.batch.is_empty() {
            let mut queue = self.group.queue(self.on_caller);
            let Some(waiting) = queue.as_mut().filter(|waiting| !waiting.is_empty()) else {
                (*queue, self.is_of_queue) = (None, false);
                break;
            };
            let count = waiting.len().min(MAX_ENDS);
            let batch: Vec<_> = waiting.drain(..count).collect();
            drop(queue);
            for end in batch {
                match end.phase() {
                    Phase::Ended | Phase::InTransaction(_) => end.submit(self.on_caller),
                    _ => self.batch.push(end),
                }
            }
        }
        !self.batch.is_empty()
    }

    fn times(&self) -> Times {
        let times = self.batch.iter().map(|end| end.times(self.on_caller));
        let shortest = times.reduce(|one, other| Times {
            fallback_after: one.fallback_after.min(other.fallback_after),
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
        let mut queue = self.group.queue(self.on_caller);
        if queue.as_ref().is_none_or(Vec::is_empty) {
            *queue = None;
        } else {
            drop(queue);
            Self::start(Arc::clone(&self.group), self.on_caller, None);
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
                end.answered(self.on_caller, answer);
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
            let waiting = self.group.queue(self.on_caller).take();
            ends.extend(waiting.unwrap_or_default());
        }
        // Without the keeper the rows expire.
        if self.on_caller {
            for end in ends {
                end.submit(false);
            }
        }
    }
}

/// Clones an error for every row of a batch; `None` for a refusal, which can differ by row.
fn copy<E: RowError>(error: &E) -> Option<E> {
    match error.failure() {
        Failure::Unreachable => Some(PoolError::new(error.to_string()).into()),
        Failure::Unanswered => Some(E::of_database(connection_lost(error.to_string()))),
        Failure::Refused | Failure::Final => None,
    }
}
