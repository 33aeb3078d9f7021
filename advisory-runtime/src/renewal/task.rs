//! The renewal of a row: when it is sent, and when it is given up.

use super::{End, Tenure, UNANSWERED, pause};
use diesel::result::Error as DieselError;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A row that can be renewed.
pub(crate) trait Renew: Send + Sync {
    /// The product's error.
    type Error: Into<DieselError> + Send;

    fn tenure(&self) -> &Tenure;

    /// Renews the row in one round trip of at most `left`; `false` if it is not held any more.
    fn renew(&self, left: Duration) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Waits for the end of the transaction that ended the tenure, and tells whether it was committed.
    fn is_ended(&self, left: Duration) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Is called for a failed renewal, which is tried again.
    fn failed(&self, _: &Self::Error) {}
}

/// Renews until the row is lost or the tenure has ended. Runs on a task of its own, so that work which blocks its thread is renewed.
pub(crate) async fn renew_until_lost(row: &impl Renew, every: Duration) {
    let tenure = row.tenure();
    // Of a grant whose answer was lost, and of a row that was claimed long ago, less than a whole ttl is left.
    let left = tenure.deadline().saturating_duration_since(Instant::now());
    let mut next = Instant::now() + every.min(left / 2);
    loop {
        sleep_until(next).await;
        let sent = Instant::now();
        let left = tenure.expires().saturating_duration_since(sent);
        let answer = match tenure.end() {
            End::Done => return,
            // The answer to its commit may never come.
            End::Inside(_) if tenure.return_by().is_some_and(|by| sent >= by) => break,
            // The open transaction has the row locked, so nobody else can take it.
            End::Inside(since) => row.is_ended(left.max(UNANSWERED)).await.map(|is_ended| {
                tenure.settle(since, is_ended);
                sent
            }),
            End::Open | End::Asked | End::RolledBack if tenure.is_lost() || tenure.is_expired() => {
                break;
            }
            End::Open | End::Asked | End::RolledBack => match row.renew(left).await {
                Ok(false) if !matches!(tenure.end(), End::Inside(_)) => break,
                Ok(true) => Ok(tenure.next_renewal(sent + every, every)),
                Ok(false) => Ok(sent),
                Err(error) => Err(error),
            },
        };
        next = answer.unwrap_or_else(|error| {
            row.failed(&error);
            tenure.blame(error.into());
            Instant::now() + pause(every)
        });
    }
    tenure.lose();
}

#[cfg(test)]
mod tests {
    use super::{Renew, renew_until_lost};
    use crate::renewal::{End, Expiry, Sent, Tenure, UNANSWERED};
    use diesel::result::Error as DieselError;
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;
    use tokio::time::Instant;

    /// More than four pauses of at most a second.
    const EVERY: Duration = Duration::from_secs(2);
    const TTL: Duration = Duration::from_secs(10);

    type Answer = Result<bool, DieselError>;

    /// A row whose answers are known. The clock is virtual, and goes on to the next timer whenever nothing else can run.
    struct Row<A> {
        tenure: Tenure,
        started: Instant,
        answer: A,
        /// When it was asked, in milliseconds, and whether for the end.
        asked: Mutex<Vec<(u128, bool)>>,
    }

    impl<A: Fn(&Tenure, usize) -> Answer + Send + Sync> Row<A> {
        fn new(left: Duration, answer: A) -> Self {
            Self {
                tenure: Tenure::new(Expiry::after(Sent::now(), left), TTL),
                started: Instant::now(),
                answer,
                asked: Mutex::default(),
            }
        }

        fn ask(&self, is_end: bool) -> Answer {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push((self.started.elapsed().as_millis(), is_end));
            assert!(asked.len() < 100, "it never ends: {asked:?}");
            (self.answer)(&self.tenure, asked.len())
        }

        async fn renewed(self) -> (Vec<u128>, Vec<u128>, Tenure) {
            renew_until_lost(&self, EVERY).await;
            let asked = self.asked.into_inner().unwrap();
            let of = |is_end| {
                let asked = asked.iter().filter(|(_, end)| *end == is_end);
                asked.map(|(at, _)| *at).collect()
            };
            (of(false), of(true), self.tenure)
        }
    }

    impl<A: Fn(&Tenure, usize) -> Answer + Send + Sync> Renew for Row<A> {
        type Error = DieselError;

        fn tenure(&self) -> &Tenure {
            &self.tenure
        }

        async fn renew(&self, _: Duration) -> Answer {
            let sent = Sent::now();
            let answer = self.ask(false);
            if let Ok(true) = answer {
                self.tenure.renewed(sent, TTL);
            }
            answer
        }

        async fn is_ended(&self, _: Duration) -> Answer {
            self.ask(true)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_renewal_is_sent_again_after_a_quarter() {
        let row = Row::new(TTL, |_, nth| match nth {
            2 => Err(DieselError::NotFound),
            4 => Ok(false),
            _ => Ok(true),
        });
        let (renewed, _, tenure) = row.renewed().await;
        assert_eq!(renewed, [2_000, 4_000, 4_500, 6_500]);
        assert!(tenure.is_lost());
        assert_eq!(tenure.reason(), Some(DieselError::NotFound));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_grant_is_halved_for_the_first_renewal() {
        // A second of these is the margin.
        let row = Row::new(Duration::from_secs(3), |_, nth| Ok(nth < 2));
        assert_eq!(row.renewed().await.0, [1_000, 3_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_are_given_up_at_the_expiry() {
        let row = Row::new(TTL, |_, _| Err(DieselError::NotFound));
        let (renewed, _, tenure) = row.renewed().await;
        assert_eq!(renewed.first(), Some(&2_000));
        assert_eq!(renewed.last(), Some(&9_500));
        assert_eq!(renewed.len(), 16);
        assert!(tenure.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_row_is_not_renewed() {
        let row = Row::new(TTL, |tenure, _| {
            tenure.lose();
            Ok(true)
        });
        assert_eq!(row.renewed().await.0, [2_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_transactions_end_is_asked_for_until_work_must_return() {
        let row = Row::new(TTL, |_, _| Err(DieselError::NotFound));
        row.tenure.ending().done(true);
        let (renewed, ended, tenure) = row.renewed().await;
        assert_eq!(renewed, []);
        assert_eq!(ended.first(), Some(&2_000));
        assert!(Duration::from_millis(9_500) < UNANSWERED);
        assert_eq!(ended.last(), Some(&9_500));
        assert_eq!(ended.len(), 16);
        assert!(tenure.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_transaction_that_was_rolled_back_is_followed_by_renewals() {
        let row = Row::new(TTL, |_, nth| Ok(nth == 2));
        row.tenure.ending().done(true);
        let (renewed, ended, tenure) = row.renewed().await;
        assert_eq!(ended, [2_000]);
        assert_eq!(renewed, [2_000, 4_000]);
        assert_eq!(tenure.end(), End::RolledBack);
        assert!(tenure.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_the_tenure_has_ended_loses_nothing() {
        let row = Row::new(TTL, |tenure, nth| {
            if nth == 1 {
                // The transaction of `complete` was faster than the renewal.
                tenure.ending().done(true);
            }
            Ok(nth == 2)
        });
        let (renewed, ended, tenure) = row.renewed().await;
        assert_eq!((renewed, ended), (vec![2_000], vec![2_000]));
        assert_eq!(tenure.end(), End::Done);
        assert!(!tenure.is_lost());
    }
}
