//! A model of leases, checked in every order of its steps: see `docs/model.md`.

#![allow(
    missing_docs,
    reason = "a check of this repository, which publishes no documentation"
)]

mod action;
mod bug;
mod check;
mod effect;
mod hold;
mod lease_property;
mod leases;
mod model;
mod state;
mod steps;
mod story;

pub use action::Action;
pub use bug::Bug;
pub use check::{Checked, check, find};
pub use hold::{
    HOLD_GRACE, HOLD_MARGIN, HOLD_TTL, HoldBug, HoldChecked, HoldProperty, HoldState, HoldStep,
    Phase, RowState, Settled, Stop, check_hold,
};
pub use lease_property::LeaseProperty;
pub use leases::{Answer, Leases, TTL};
pub use state::{Call, Caller, Data, History, Lease, Process, Row, State, Transaction, Written};
pub use story::story;
