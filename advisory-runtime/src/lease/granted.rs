//! A lease as the keeper has it.

use super::{Error, Lease};
use crate::rows::Observer;
use std::time::Duration;

/// A granted lease, and what its renewal needs.
#[derive(Clone)]
pub struct Granted {
    pub(super) lease: Lease,
    pub(super) ttl: Duration,
    pub(super) every: Duration,
    pub(super) observer: Option<Observer<Lease, Error>>,
}
