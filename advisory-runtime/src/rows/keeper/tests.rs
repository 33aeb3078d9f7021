//! Rows whose answers are known, on a virtual clock.
use super::{End, HeldRow, Hold, Keeper, Name, Renewal, Renewed, RowEvent, Rows, Settled, Times};
use crate::rows::{Answering, Ended, Failure, Moment, RowError, failure_of};
use crate::{Error, PoolError};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::cell::RefCell;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const TTL: Duration = Duration::from_secs(9);
const EVERY: Duration = Duration::from_secs(3);

impl RowError for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Pool(_) => Failure::Unreachable,
            Self::Database(error) => failure_of(error),
            _ => Failure::Final,
        }
    }
}

/// Rows whose answers are known, and whose ends may go together. The clock is virtual, and goes on
/// to the next timer whenever nothing else can run.
#[derive(Clone)]
struct Known {
    batches_ends: bool,
    started: Instant,
    /// What was sent when, in milliseconds.
    sent: Arc<Mutex<Vec<(u128, String)>>>,
    renew: fn(&[u8]) -> Result<Vec<Renewed>, Error>,
    end: fn(usize) -> Result<bool, Error>,
}

#[derive(Clone)]
struct Row(u8, Arc<Hold>);

impl Known {
    fn new(
        renew: fn(&[u8]) -> Result<Vec<Renewed>, Error>,
        end: fn(usize) -> Result<bool, Error>,
    ) -> Self {
        Self {
            batches_ends: false,
            started: Instant::now(),
            sent: Arc::default(),
            renew,
            end,
        }
    }

    fn note(&self, what: String) -> usize {
        let mut sent = self.sent.lock().expect("no test panics with it");
        sent.push((self.started.elapsed().as_millis(), what));
        assert!(sent.len() < 100, "it never ends: {sent:?}");
        sent.len()
    }

    fn sent(&self) -> Vec<(u128, String)> {
        self.sent.lock().expect("no test panics with it").clone()
    }

    fn keep(&self, keeper: &Arc<Keeper>, id: u8) -> Renewal<Row> {
        let name = Name::new::<Row>(0, None);
        let row = Row(id, Arc::new(Hold::new(Moment::now().plus(TTL), TTL)));
        let renewal = keeper.keep(name, &|| Box::new(self.clone()), row, true);
        renewal.expect("there is a runtime")
    }
}

impl HeldRow for Row {
    type End = ();
    type Error = Error;

    fn hold(&self) -> &Hold {
        &self.1
    }

    fn every(&self) -> Duration {
        EVERY
    }

    fn tell(&self, event: RowEvent<'_, Error>) {
        if matches!(event, RowEvent::Lost) {
            ON_LOST.with_borrow(|on_lost| on_lost());
        }
    }

    fn shown_end((): &()) -> End {
        End::Release
    }
}

impl Rows<Row> for Known {
    fn sends_on_caller(&self) -> bool {
        true
    }

    fn batches_ends(&self) -> bool {
        self.batches_ends
    }

    fn renew(&self, rows: Vec<Row>, _: Times) -> Answering<'_, Vec<Renewed>, Error> {
        let mut ids: Vec<_> = rows.iter().map(|row| row.0).collect();
        ids.sort_unstable();
        self.note(format!("renew {ids:?}"));
        let ids: Vec<_> = rows.iter().map(|row| row.0).collect();
        Box::pin(ready((self.renew)(&ids)))
    }

    fn settled(&self, rows: Vec<Row>, _: Times) -> Answering<'_, Vec<Settled>, Error> {
        self.note("settled?".to_owned());
        Box::pin(ready(Ok(vec![Settled::Committed; rows.len()])))
    }

    fn end(&self, row: Row, (): (), _: Times, on_caller: bool) -> Answering<'_, bool, Error> {
        let place = if on_caller { "here" } else { "by the keeper" };
        let nth = self.note(format!("end {} {place}", row.0));
        // Somebody has locked this one.
        let millis = if row.0 == 9 { 1_000 } else { 10 };
        Box::pin(async move {
            answer_after(Duration::from_millis(millis)).await;
            (self.end)(nth)
        })
    }

    fn end_all(&self, ends: Vec<(Row, ())>, _: Times, _: bool) -> Answering<'_, Vec<bool>, Error> {
        let ids: Vec<_> = ends.iter().map(|(row, ())| row.0).collect();
        self.note(format!("end {ids:?}"));
        Box::pin(async move {
            answer_after(Duration::from_millis(10)).await;
            if ids.contains(&8) {
                return Err(unreachable());
            }
            Ok(ids.iter().map(|id| *id != 9).collect())
        })
    }
}

thread_local! {
    /// A program's observer.
    static ON_LOST: RefCell<Box<dyn Fn()>> = RefCell::new(Box::new(|| ()));
}

fn refusal() -> Error {
    let refused = Box::new("a trigger says no".to_owned());
    DieselError::DatabaseError(DatabaseErrorKind::CheckViolation, refused).into()
}

fn unreachable() -> Error {
    PoolError::new("nobody there").into()
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_due_at_nearly_the_same_time_are_renewed_together() {
    let rows = Known::new(|ids| Ok(vec![Renewed::For(TTL); ids.len()]), |_| Ok(true));
    let keeper = Arc::default();
    let first = rows.keep(&keeper, 1);
    pass(EVERY / 5).await;
    let second = rows.keep(&keeper, 2);
    pass(EVERY * 4 / 5).await;
    pass(EVERY).await;
    let both = "renew [1, 2]".to_owned();
    assert_eq!(rows.sent(), [(3000, both.clone()), (6000, both)]);
    drop(first);
    pass(EVERY).await;
    assert_eq!(rows.sent().last(), Some(&(9000, "renew [2]".to_owned())));
    drop(second);
    pass(TTL).await;
    assert_eq!(rows.sent().len(), 3, "no row is left");
}

#[tokio::test(start_paused = true)]
async fn one_row_that_cannot_be_renewed_does_not_take_its_neighbours_along() {
    let rows = Known::new(
        |ids| {
            if ids.contains(&2) {
                Err(refusal())
            } else {
                Ok(vec![Renewed::For(TTL); ids.len()])
            }
        },
        |_| Ok(true),
    );
    let keeper = Arc::default();
    let renewals = [1, 2, 3, 4].map(|id| rows.keep(&keeper, id));
    for _ in 0..12 {
        pass(Duration::from_secs(1)).await;
    }
    let lost = renewals.each_ref().map(|renewal| renewal.row.1.is_lost());
    assert_eq!(lost, [false, true, false, false], "{:?}", rows.sent());
}

#[tokio::test(start_paused = true)]
async fn an_end_that_reaches_nobody_is_tried_again_by_the_keeper() {
    let end = |nth| {
        if nth < 4 {
            Err(unreachable())
        } else {
            Ok(true)
        }
    };
    let rows = Known::new(|_| unreachable!("it is not due"), end);
    let renewal = rows.keep(&Arc::default(), 1);
    let ended = renewal.end(()).await.unwrap();
    assert!(matches!(ended, Ended::Done), "{ended:?}");
    let sent: Vec<_> = rows.sent().into_iter().map(|(_, what)| what).collect();
    let by_keeper = "end 1 by the keeper";
    assert_eq!(sent, ["end 1 here", by_keeper, by_keeper, by_keeper]);
}

/// The time that a server takes.
async fn answer_after(time: Duration) {
    tokio::time::sleep_until(Instant::now() + time).await;
}

impl Known {
    fn gathered() -> Self {
        Self {
            batches_ends: true,
            ..Self::new(|ids| Ok(vec![Renewed::Busy; ids.len()]), |_| Ok(true))
        }
    }

    fn keep_all(&self, ids: &[u8]) -> Vec<Renewal<Row>> {
        let keeper = Arc::default();
        ids.iter().map(|id| self.keep(&keeper, *id)).collect()
    }

    /// Ends the first one, and while it is on its way the others; what was sent.
    async fn end(&self, ids: &[u8]) -> Vec<String> {
        let mut ends = Vec::new();
        for renewal in self.keep_all(ids) {
            ends.push(tokio::spawn(renewal.end(())));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
        for end in ends {
            let ended = end.await.expect("it does not panic");
            let ended = ended.expect("it is tried until it is ended");
            assert!(matches!(ended, Ended::Done), "{ended:?}");
        }
        self.sent().into_iter().map(|(_, what)| what).collect()
    }
}

/// Row 9 is locked by somebody, and a batch with row 8 has no answer.
#[tokio::test(start_paused = true)]
async fn what_ends_while_an_end_is_on_its_way_goes_with_the_next_one() {
    for (ids, sent, at) in [
        (&[1, 2, 3, 4][..], &["end 1 here", "end [2, 3, 4]"][..], 10),
        // What a batch has not ended is ended alone.
        (
            &[1, 2, 9],
            &["end 1 here", "end [2, 9]", "end 9 by the keeper"],
            10,
        ),
        // An end that is late holds up no other.
        (&[9, 1, 2], &["end 9 here", "end [1, 2]"], 50),
    ] {
        let rows = Known::gathered();
        assert_eq!(rows.end(ids).await, sent);
        let started: Vec<_> = rows.sent().into_iter().map(|(at, _)| at).collect();
        assert_eq!(started[..2], [0, at], "{ids:?}");
    }
    let sent = Known::gathered().end(&[1, 2, 8]).await;
    assert_eq!(sent[..2], ["end 1 here", "end [2, 8]"]);
    assert!(sent.len() > 2, "the keeper tries the batch again: {sent:?}");
}

/// Its statement goes on, and what has waited is sent.
#[tokio::test(start_paused = true)]
async fn ends_whose_callers_are_dropped_are_sent() {
    let rows = Known::gathered();
    for renewal in rows.keep_all(&[1, 2, 3]) {
        let end = tokio::spawn(renewal.end(()));
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        end.abort();
    }
    pass(Duration::from_millis(20)).await;
    let sent: Vec<_> = rows.sent().into_iter().map(|(_, what)| what).collect();
    assert_eq!(sent, ["end 1 here", "end [2, 3]"]);
}

/// Nothing may be locked while the program is told.
#[tokio::test(start_paused = true)]
async fn an_observer_may_hold_another_row() {
    let rows = Known::new(|_| Err(unreachable()), |_| Ok(true));
    let keeper = Arc::default();
    let renewal = rows.keep(&keeper, 1);
    let (other, told) = (rows.clone(), Arc::new(Mutex::new(0)));
    ON_LOST.set(Box::new({
        let told = Arc::clone(&told);
        move || {
            drop(other.keep(&keeper, 2));
            *told.lock().unwrap() += 1;
        }
    }));
    for _ in 0..12 {
        pass(Duration::from_secs(1)).await;
    }
    assert!(renewal.row.1.is_lost());
    assert_eq!(*told.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_given_up_when_the_row_has_expired() {
    let rows = Known::new(
        |ids| Ok(vec![Renewed::For(TTL); ids.len()]),
        |_| Err(unreachable()),
    );
    let renewal = rows.keep(&Arc::default(), 1);
    let ended = renewal.end(()).await;
    assert!(matches!(ended, Err(Error::Pool(_))), "{ended:?}");
    assert!(rows.started.elapsed() < TTL + EVERY);
}
