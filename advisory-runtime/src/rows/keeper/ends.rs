//! Ends that go to the server together: what ends while a statement is on its way goes with the
//! next one.
//!
//! Nothing waits for others: an end that finds no statement on its way is sent at once, alone. A
//! row that a statement for many has not ended, because it is locked, lost or refuses its end, is
//! ended by statements of its own, so that no row holds up its neighbours.

use super::{Group, Keeper, Kept, Reply, Rows};
use crate::PoolError;
use crate::rows::end::{Ended, Tries};
use crate::rows::failure::{Failure, RowError};
use crate::rows::hold::Phase;
use crate::rows::reach::Times;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep_until, timeout};

/// How many rows one statement ends at most.
const MOST: usize = 1_000;
/// After this time the next statement does not wait any more for the one on its way.
const LATE: Duration = Duration::from_millis(50);

/// Where a statement is sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The runtime of whoever ends the row.
    Here,
    Keeper,
}

/// A row to end.
pub(super) struct EndRequest<R: Rows> {
    kept: Kept<R>,
    end: R::End,
    tries: Tries<R::Error>,
    reply: Option<Reply<R>>,
}

impl<R: Rows> EndRequest<R> {
    pub(super) fn new(kept: Kept<R>, end: R::End, reply: Option<Reply<R>>) -> Self {
        let tries = Tries::new(R::hold(&kept.row));
        Self {
            kept,
            end,
            tries,
            reply,
        }
    }

    /// Sends it, or leaves it to whoever waits for an answer.
    pub(super) fn submit(self, place: Place) {
        match R::hold(&self.kept.row).phase() {
            Phase::Ended => self.reply(Ok(Ended::Done)),
            // That transaction decides.
            Phase::InTransaction(_) => self.end_alone(),
            _ => {
                let place = match Handle::try_current() {
                    Ok(_) if R::GATHERS => place,
                    _ => Place::Keeper,
                };
                let group = Arc::clone(&self.kept.group);
                let keeper = Arc::clone(&self.kept.keeper);
                let number = group.ends.queue(place).push(self);
                if let Some(number) = number {
                    Sender::start(group, &keeper, place, number);
                }
            }
        }
    }

    fn reply(mut self, ended: Result<Ended, R::Error>) {
        if let Some(reply) = self.reply.take() {
            call::<R>(reply, ended);
        }
    }

    /// Ends it on the keeper by statements of its own.
    fn end_alone(self) {
        let keeper = Arc::clone(&self.kept.keeper);
        keeper.spawn(async move { self.kept.end_with(self.end, self.tries, self.reply).await });
    }

    /// Takes the answer of a try.
    fn answered(mut self, place: Place, was_lost: bool, answer: Result<bool, R::Error>) {
        self.kept.observe_end(was_lost, &self.end, &answer);
        let is_sent = !matches!(&answer, Err(error) if error.failure() == Failure::Unreachable);
        if place == Place::Here && !is_sent {
            // The keeper has connections of its own, also for a row that has expired by now.
            return self.submit(Place::Keeper);
        }
        match self.tries.after(answer) {
            ControlFlow::Break(ended) => self.reply(ended),
            ControlFlow::Continue(again) => {
                let keeper = Arc::clone(&self.kept.keeper);
                keeper.spawn(async move {
                    sleep_until(again).await;
                    self.submit(Place::Keeper);
                });
            }
        }
    }
}

/// Tells how a row was ended. A panic of the program's observer stops nothing.
pub(super) fn call<R: Rows>(reply: Reply<R>, ended: Result<Ended, R::Error>) {
    drop(catch_unwind(AssertUnwindSafe(|| reply(ended))));
}

/// The ends of a group that wait, by the place from which they are sent.
pub(super) struct Ends<R: Rows> {
    here: Mutex<Queue<R>>,
    keeper: Mutex<Queue<R>>,
}

impl<R: Rows> Default for Ends<R> {
    fn default() -> Self {
        Self {
            here: Mutex::default(),
            keeper: Mutex::default(),
        }
    }
}

impl<R: Rows> Ends<R> {
    fn queue(&self, place: Place) -> MutexGuard<'_, Queue<R>> {
        let queue = match place {
            Place::Here => &self.here,
            Place::Keeper => &self.keeper,
        };
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Queue<R: Rows> {
    waiting: Vec<EndRequest<R>>,
    /// Who sends what waits.
    sender: Option<u64>,
    last_sender: u64,
}

impl<R: Rows> Default for Queue<R> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            sender: None,
            last_sender: 0,
        }
    }
}

impl<R: Rows> Queue<R> {
    /// The number of a new sender, if there is none.
    fn push(&mut self, end: EndRequest<R>) -> Option<u64> {
        self.waiting.push(end);
        if self.sender.is_some() {
            return None;
        }
        Some(self.next_sender())
    }

    fn next_sender(&mut self) -> u64 {
        self.last_sender += 1;
        self.sender = Some(self.last_sender);
        self.last_sender
    }
}

/// Sends what waits, a batch at a time.
struct Sender<R: Rows> {
    group: Arc<Group<R>>,
    place: Place,
    number: u64,
    /// What is on its way.
    batch: Vec<EndRequest<R>>,
}

impl<R: Rows> Sender<R> {
    fn start(group: Arc<Group<R>>, keeper: &Arc<Keeper>, place: Place, number: u64) {
        let sender = Self {
            group,
            place,
            number,
            batch: Vec::new(),
        };
        match place {
            Place::Here => drop(tokio::spawn(sender.run())),
            Place::Keeper => drop(keeper.spawn(sender.run())),
        }
    }

    async fn run(mut self) {
        while self.take_batch() {
            let was_lost = self.batch.iter();
            let was_lost: Vec<_> = was_lost
                .map(|end| R::hold(&end.kept.row).is_lost())
                .collect();
            let times = self.times();
            let is_here = self.place == Place::Here;
            let group = Arc::clone(&self.group);
            let ends = self.batch.iter();
            let mut ends: Vec<_> = ends
                .map(|end| (end.kept.row.clone(), end.end.clone()))
                .collect();
            if ends.len() == 1
                && let Some((row, end)) = ends.pop()
            {
                let answer = self.unless_late(group.rows.end(row, end, times, is_here));
                let answer = answer.await;
                if let Some((end, was_lost)) = self.batch.pop().zip(was_lost.first()) {
                    end.answered(self.place, *was_lost, answer);
                }
            } else {
                let answers = self.unless_late(group.rows.end_all(ends, times, is_here));
                let answers = answers.await;
                self.answered(&was_lost, answers);
            }
        }
    }

    /// Whether there is something to send, and nobody else sends it.
    fn take_batch(&mut self) -> bool {
        loop {
            let mut queue = self.group.ends.queue(self.place);
            if queue.sender != Some(self.number) {
                return false;
            }
            if queue.waiting.is_empty() {
                queue.sender = None;
                return false;
            }
            let count = queue.waiting.len().min(MOST);
            let rest = queue.waiting.split_off(count);
            let batch = std::mem::replace(&mut queue.waiting, rest);
            drop(queue);
            for end in batch {
                match R::hold(&end.kept.row).phase() {
                    Phase::Ended => end.reply(Ok(Ended::Done)),
                    Phase::InTransaction(_) => end.end_alone(),
                    _ => self.batch.push(end),
                }
            }
            if !self.batch.is_empty() {
                return true;
            }
        }
    }

    fn times(&self) -> Times {
        let times = self.batch.iter().map(|end| match self.place {
            Place::Here => end.kept.times_here(&end.tries),
            Place::Keeper => end.tries.times(),
        });
        let shortest = times.reduce(|one, other| Times {
            soon: one.soon.min(other.soon),
            answer: one.answer.min(other.answer),
        });
        shortest.unwrap_or_else(|| Times::new(LATE, LATE))
    }

    /// The answer. If it is late, the next end does not wait for it.
    async fn unless_late<F: Future>(&mut self, answer: F) -> F::Output {
        let mut answer = std::pin::pin!(answer);
        if let Ok(answer) = timeout(LATE, answer.as_mut()).await {
            return answer;
        }
        let next = {
            let mut queue = self.group.ends.queue(self.place);
            if queue.sender == Some(self.number) {
                queue.sender = None;
            }
            let keeper = queue
                .waiting
                .first()
                .map(|end| Arc::clone(&end.kept.keeper));
            keeper.map(|keeper| (keeper, queue.sender.is_none().then(|| queue.next_sender())))
        };
        if let Some((keeper, Some(number))) = next {
            Self::start(Arc::clone(&self.group), &keeper, self.place, number);
        }
        answer.await
    }

    fn answered(&mut self, was_lost: &[bool], answers: Result<Vec<bool>, R::Error>) {
        let batch = std::mem::take(&mut self.batch);
        let error = match answers {
            Ok(answers) => {
                let answers = answers.into_iter().chain(std::iter::repeat(false));
                for ((end, was_lost), is_ended) in batch.into_iter().zip(was_lost).zip(answers) {
                    if is_ended {
                        end.answered(self.place, *was_lost, Ok(true));
                    } else {
                        end.end_alone();
                    }
                }
                return;
            }
            Err(error) => error,
        };
        for (end, was_lost) in batch.into_iter().zip(was_lost) {
            match copy(&error) {
                Some(error) => end.answered(self.place, *was_lost, Err(error)),
                // Its own statement says why.
                None => end.end_alone(),
            }
        }
    }
}

impl<R: Rows> Drop for Sender<R> {
    /// Its runtime ends.
    fn drop(&mut self) {
        let mut ends = std::mem::take(&mut self.batch);
        let mut queue = self.group.ends.queue(self.place);
        if queue.sender == Some(self.number) {
            queue.sender = None;
            ends.append(&mut queue.waiting);
        }
        drop(queue);
        // Without the keeper the rows expire.
        if self.place == Place::Here {
            for end in ends {
                end.submit(Place::Keeper);
            }
        }
    }
}

/// An error that says the same about the next try; `None` for a refusal, which can be another one
/// for each row.
fn copy<E: RowError>(error: &E) -> Option<E> {
    match error.failure() {
        Failure::Unreachable => Some(PoolError::new(error.to_string()).into()),
        Failure::Unanswered => {
            let text = Box::new(error.to_string());
            let lost = DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, text);
            Some(E::of_database(lost))
        }
        Failure::Refused | Failure::Final => None,
    }
}
