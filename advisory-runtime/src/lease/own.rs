//! What only the holder of a lease may do with it.

use super::Table;
use super::answer::{flag, lies_outside};
use super::request::{lasts, milliseconds};
use super::sql::HELD;
use super::standing::Lease;
use super::statement::Value;
use crate::{Connection, Error};
use diesel_async::AsyncPgConnection;
use std::time::Duration;
use tokio::time::Instant;

impl Table {
    /// Makes a lease last its ttl from now on; `false` when it is not held any more, and then it never is again. It never gets
    /// shorter. A fencing token stays what it is. [`Leases::acquire`](super::Leases::acquire) does it in the background.
    ///
    /// # Locking
    ///
    /// One statement: the row is locked (`SELECT … FOR NO KEY UPDATE`), and then `UPDATE … SET expires_at = clock_timestamp() + ttl` where
    /// it is still this grant's and has not expired. It passes by a [`fence`](Lease::fence), and waits for nobody but a statement that
    /// changes the row. `synchronous_commit` is forced for it. The ttl is whole milliseconds, rounded up.
    ///
    /// # Errors
    ///
    /// [`Error::InTransaction`] inside a transaction, which could undo it; [`Error::InvalidLease`] for more than 100 years;
    /// [`Error::MissingTable`] (42P01), [`Error::Standby`], [`Error::BrokenConnection`], [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it is renewed or not, and the lease's own clock counts from before.
    ///
    /// # Examples
    ///
    /// The page of [`Table::acquire`] has one.
    pub async fn renew<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error> {
        lies_outside(conn.pg(), || lease.name())?;
        lasts(ttl, || lease.name())?;
        let sent = Instant::now();
        let is_held = self
            .own(conn.pg(), lease, &self.0.texts.renew, Some(ttl))
            .await?;
        if is_held {
            lease.standing.extend(sent, ttl);
        } else {
            lease.standing.lose();
        }
        Ok(is_held)
    }

    /// Releases a lease; `false` when it was not held any more. The row stays, and with it the token.
    ///
    /// # Locking
    ///
    /// `UPDATE … SET expires_at = clock_timestamp(), key = NULL` where it is still this grant's. It does not wait for the disk: a crash of
    /// the server that forgets a release leaves the key taken until the ttl is over.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may be released or not.
    pub async fn release<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        lies_outside(conn.pg(), || lease.name())?;
        let released = self
            .own(conn.pg(), lease, &self.0.texts.release, None)
            .await;
        lease.standing.lose();
        released
    }

    /// Leaves the key taken for so long from now on, by nobody who could renew, release or write under it; `false` when it was
    /// not held any more. Who asks again keeps it anew. In whole milliseconds, rounded up.
    ///
    /// # Locking
    ///
    /// As [`renew`](Self::renew), and the grant's number becomes nobody's.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may be kept or not.
    pub async fn keep<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        lies_outside(conn.pg(), || lease.name())?;
        lasts(keep, || lease.name())?;
        let kept = self
            .own(conn.pg(), lease, &self.0.texts.keep, Some(keep))
            .await;
        lease.standing.lose();
        kept
    }

    /// Whether this lease is still held, by the server's word. A moment later it may not be: to write under it use
    /// [`Lease::fence`].
    ///
    /// # Locking
    ///
    /// `SELECT … WHERE expires_at > clock_timestamp()`, of this grant. It locks nothing and waits for nobody.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn holds<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        self.own(conn.pg(), lease, &self.0.texts.holds, None).await
    }

    /// What only the holder may do.
    async fn own(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
        text: &str,
        time: Option<Duration>,
    ) -> Result<bool, Error> {
        let [hash, grant, token] = lease.values();
        let rows = match time {
            Some(time) => {
                let time = Value::Number(milliseconds(time));
                let statement = flag(text, [hash, grant, token, time]);
                self.rows(conn, statement).await
            }
            None => self.rows(conn, flag(text, [hash, grant, token])).await,
        };
        match rows {
            Ok(rows) => Ok(rows.iter().any(|row| row == HELD)),
            Err(error) => Err(self.explain(conn, error, lease.name()).await),
        }
    }
}
