//! A connection that is closed unless the code that uses it reaches its end.

use super::Driver;
use std::ops::{Deref, DerefMut};

/// Closes the connection when it is dropped, unless [`disarm`](Self::disarm) was called: for code
/// that opens a transaction or takes a lock on a connection of the caller's without a guard of a
/// lock. A future can be dropped at each `await`.
#[must_use = "dropping it closes the connection"]
pub(crate) struct CloseOnDrop<'c, D: Driver> {
    conn: &'c mut D,
    is_armed: bool,
}

impl<'c, D: Driver> CloseOnDrop<'c, D> {
    pub(crate) const fn new(conn: &'c mut D) -> Self {
        Self::armed_if(true, conn)
    }

    pub(crate) const fn armed_if(is_armed: bool, conn: &'c mut D) -> Self {
        Self { conn, is_armed }
    }

    /// Nothing is left on the connection: it stays open.
    pub(crate) fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl<D: Driver> Deref for CloseOnDrop<'_, D> {
    type Target = D;

    fn deref(&self) -> &D {
        self.conn
    }
}

impl<D: Driver> DerefMut for CloseOnDrop<'_, D> {
    fn deref_mut(&mut self) -> &mut D {
        self.conn
    }
}

impl<D: Driver> Drop for CloseOnDrop<'_, D> {
    fn drop(&mut self) {
        if self.is_armed {
            self.conn.close(true);
        }
    }
}
