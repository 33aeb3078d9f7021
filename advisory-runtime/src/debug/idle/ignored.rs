//! Nothing, where no body is followed.

use crate::debug::LockSet;
use crate::driver::Driver;
use crate::observe::Telemetry;
use std::task::{Context, Waker};

#[derive(Clone, Debug, Default)]
pub(crate) struct Statements;

#[expect(clippy::unused_self, reason = "there is nothing to know")]
impl Statements {
    pub(crate) const fn none() -> Self {
        Self
    }

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
