//! A warning about a body that holds its lock without running statements, for example while it
//! calls another service. Only in debug builds with the feature `tracing`, which the warning needs.
//!
//! Diesel reports the start and the end of each statement to its instrumentation. For diesel-async
//! a query ends when its first rows have arrived; the connection's task then wakes the body for
//! each of the others. So a wake-up by a task that has woken the body during a statement counts as
//! the database's answer. In doubt, nothing is reported.
//!
//! A connection with an instrumentation of the program's own is not observed.

#[cfg(all(debug_assertions, feature = "tracing"))]
mod followed;

#[cfg(all(debug_assertions, feature = "tracing"))]
pub(crate) use followed::Statements;
#[cfg(not(all(debug_assertions, feature = "tracing")))]
pub(crate) use ignored::Statements;

/// Nothing, where no body is followed.
#[cfg(not(all(debug_assertions, feature = "tracing")))]
mod ignored {
    use crate::debug::LockSet;
    use crate::driver::Driver;
    use crate::observe::Telemetry;
    use std::task::{Context, Waker};

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Statements;

    #[expect(clippy::unused_self, reason = "there is nothing to know")]
    impl Statements {
        pub(crate) const fn follow<D: Driver>(_: &mut D) -> Self {
            Self
        }

        pub(crate) const fn run(&mut self) -> Self {
            Self
        }

        pub(crate) const fn waker(&self, _: &Context<'_>) -> Option<Waker> {
            None
        }

        pub(crate) const fn warn_if_idle(&self, _: &LockSet, _: &Telemetry) {}
    }

    const _: () = assert!(size_of::<Statements>() == 0 && !std::mem::needs_drop::<Statements>());
}
