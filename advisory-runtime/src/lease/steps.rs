//! Each step of a lease, as one round trip on the caller's connection.

use super::change::renew_all;
use super::grant::Granted;
use super::tries::Tries;
use super::{Error, Lease, Request, Table, body_leases};
use crate::Connection;
use crate::random::random;
use crate::rows::{Renewed, Sent};
use std::time::Duration;

/// The steps of [`Leases`](super::Leases), each on the caller's connection and nothing behind it:
/// no renewal, no end.
#[allow(
    async_fn_in_trait,
    missing_docs,
    reason = "for this crate and its tests, which call it on `Table` alone"
)]
pub trait Steps {
    async fn acquire<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Lease, Error>;
    async fn acquire_as<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
        grant_id: i64,
    ) -> Result<Lease, Error>;
    async fn renew<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error>;
    async fn keep<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error>;
    async fn holds<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error>;
}

impl Steps for Table {
    /// One statement, and one round trip, per try: an `UPDATE` of the key's row or an `INSERT`,
    /// which also removes a few expired rows. It takes a transaction-level advisory lock on the key
    /// without waiting. If the request has a wait, it tries again, first after 10 ms and at last
    /// every half second. If the sequence is behind the key's token or the server's timeline, a
    /// second message moves it under a lock on the table (`SHARE ROW EXCLUSIVE`), for which it
    /// waits at most a second.
    async fn acquire<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Lease, Error> {
        self.acquire_as(conn, request, random().cast_signed()).await
    }

    /// Acquires the lease, or finds it, as the call of this number.
    async fn acquire_as<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
        grant_id: i64,
    ) -> Result<Lease, Error> {
        let request = request.into();
        request.check()?;
        drop(body_leases::record_request(&request));
        let mut tries = Tries::new(&request, self);
        loop {
            match self.attempt(conn.pg(), &request, grant_id).await? {
                Ok(lease) => return Ok(lease.with_waited(tries.waited())),
                Err(refusal) => tries.pause(refusal).await?,
            }
        }
    }

    async fn renew<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error> {
        let sent = Sent::now();
        let granted = Granted {
            lease: lease.clone(),
            ttl,
            every: ttl,
            observer: None,
        };
        let renewed = renew_all(conn.pg(), &[granted]).await?;
        let renewed = renewed.first().copied().unwrap_or(Renewed::Gone);
        match renewed {
            Renewed::For(lasts) => lease.hold.renewed(sent, lasts),
            Renewed::Busy => {}
            Renewed::Gone => lease.hold.lose(),
        }
        Ok(renewed != Renewed::Gone)
    }

    async fn keep<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        self.keep_on(conn.pg(), lease, keep).await
    }

    async fn holds<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        self.holds_on(conn.pg(), lease).await
    }
}
