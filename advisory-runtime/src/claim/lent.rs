//! A connection that a statement of a claim's is sent on, when nobody can say that its answer will come.

use crate::driver::Driver;
use crate::{Connection, cancel};
use diesel_async::AsyncPgConnection;

/// A connection that is put back with [`answered`](Self::answered). Dropped instead, its statement is cancelled, so that no session
/// goes on waiting for a row, and its pool does not lend it again.
pub(super) struct Lent<C: Connection>(Option<C>);

impl<C: Connection> Lent<C> {
    pub(super) const fn new(conn: C) -> Self {
        Self(Some(conn))
    }

    pub(super) fn pg(&mut self) -> Option<&mut AsyncPgConnection> {
        self.0.as_mut().map(Connection::pg)
    }

    /// Nothing runs on it any more.
    pub(super) fn answered(mut self) {
        self.0 = None;
    }
}

impl<C: Connection> Drop for Lent<C> {
    fn drop(&mut self) {
        let Some(conn) = self.pg() else { return };
        conn.status().set_in_error();
        cancel::send(conn.cancel_token());
    }
}
