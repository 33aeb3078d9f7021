//! The statements of a connection, as seen by its instrumentation and the wake-ups of a body.

use crate::debug::{LockSet, is_on};
use crate::driver::Driver;
use crate::observe::Telemetry;
use diesel::connection::{DynInstrumentation, Instrumentation, InstrumentationEvent};
use std::any::TypeId;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::task::Id;

/// The longest time between two statements of a body without a warning.
const LONG: Duration = Duration::from_secs(1);

/// The statements of a call's connection since its lock was held; `None` if they are not followed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statements(Option<Followed>);

#[derive(Clone, Debug)]
struct Followed {
    clock: StatementClock,
    /// The time since which the call holds its lock.
    since: Instant,
    /// True if its body runs under the attribute, so that its wake-ups are seen.
    has_body: bool,
}

#[derive(Clone, Debug)]
struct StatementClock(Arc<Mutex<Seen>>);

#[derive(Debug)]
struct Seen {
    running: usize,
    /// The time since which none runs.
    idle_since: Instant,
    /// The tasks that have woken a body during a statement, among them the connection's.
    tasks: Vec<Id>,
    /// The times longer than [`LONG`] in which none ran.
    gaps: Vec<(Instant, Instant)>,
}

impl Seen {
    fn start(&mut self) {
        if self.running == 0 {
            self.end_gap();
        }
        self.running += 1;
    }

    fn stop(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.idle_since = Instant::now();
    }

    fn end_gap(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.idle_since) > LONG {
            self.gaps.push((self.idle_since, now));
        }
        self.idle_since = now;
    }

    fn woken(&mut self, by: Option<Id>) {
        let Some(task) = by else { return };
        let is_known = self.tasks.contains(&task);
        if self.running > 0 && !is_known {
            self.tasks.push(task);
        } else if self.running == 0 && is_known {
            self.idle_since = Instant::now();
        }
    }
}

impl StatementClock {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of<D: Driver>(conn: &mut D) -> Option<Self> {
        static NONE: LazyLock<TypeId> =
            LazyLock::new(|| DynInstrumentation::none().as_any().type_id());
        let current = conn.instrumentation();
        if let Some(own) = current.downcast_ref::<Self>() {
            return Some(own.clone());
        }
        if current.as_any().type_id() != *NONE {
            return None;
        }
        let clock = Self(Arc::new(Mutex::new(Seen {
            running: 0,
            idle_since: Instant::now(),
            tasks: Vec::new(),
            gaps: Vec::new(),
        })));
        conn.set_instrumentation(clock.clone());
        Some(clock)
    }
}

impl Instrumentation for StatementClock {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { .. } => self.seen().start(),
            InstrumentationEvent::FinishQuery { .. } => self.seen().stop(),
            _ => {}
        }
    }
}

impl Statements {
    /// Follows those of a connection that has just acquired its lock, so that no statement runs.
    pub(crate) fn follow<D: Driver>(conn: &mut D) -> Self {
        let clock = is_on().then(|| StatementClock::of(conn)).flatten();
        let since = Instant::now();
        if let Some(clock) = &clock {
            let mut seen = clock.seen();
            // The end of a dropped statement is never reported.
            (seen.running, seen.idle_since) = (0, since);
        }
        let has_body = false;
        Self(clock.map(|clock| Followed {
            clock,
            since,
            has_body,
        }))
    }

    pub(crate) fn run(&mut self) -> Self {
        if let Self(Some(followed)) = self {
            followed.has_body = true;
        }
        self.clone()
    }

    pub(crate) fn waker(&self, context: &Context<'_>) -> Option<Waker> {
        let clock = self.0.as_ref()?.clock.clone();
        let waker = context.waker().clone();
        Some(Arc::new(Noted { waker, clock }).into())
    }

    /// Warns if the body held these locks for long without a statement, once for each place.
    pub(crate) fn warn_if_idle(&self, locks: &LockSet, telemetry: &Telemetry) {
        static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let Some(idle) = self.longest() else { return };
        let place = locks.place.to_string();
        let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = warned.insert(place.clone());
        drop(warned);
        if is_new {
            telemetry.record_idle(&place, idle);
        }
    }

    /// The longest time without a statement, if it was long. Each time is reported once, for the
    /// innermost call.
    fn longest(&self) -> Option<Duration> {
        let Followed { clock, since, .. } = self.0.as_ref().filter(|it| it.has_body)?;
        let mut seen = clock.seen();
        if seen.running == 0 {
            seen.end_gap();
        }
        let is_own = |(begin, _): &(Instant, Instant)| begin >= since;
        let own = seen.gaps.iter().filter(|gap| is_own(gap));
        let longest = own.map(|(begin, end)| end.duration_since(*begin)).max();
        seen.gaps.retain(|gap| !is_own(gap));
        longest
    }
}

/// A waker that records which task has called it.
struct Noted {
    waker: Waker,
    clock: StatementClock,
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.clock.seen().woken(tokio::task::try_id());
        self.waker.wake_by_ref();
    }
}
