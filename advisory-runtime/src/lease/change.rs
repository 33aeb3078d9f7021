//! Changes the row of a grant, or asks for it, each in one round trip.

use super::granted::Granted;
use super::request::{milliseconds, name_of, wrong_data};
use super::sql::Form;
use super::statement::{RenewColumns, SettleColumns, Statement, Value, count};
use super::{Error, Lease, Row, Table};
use crate::Connection;
use crate::driver::Queries;
use crate::random::random;
use crate::rows::{Renewed, Settled, require_no_transaction};
use std::time::Duration;

impl Table {
    /// Frees the key of a row that [`find`](Self::find) or [`list`](Self::list) has shown, held or
    /// done; `false` if the row has another token by now, or has expired. For operators: it needs
    /// no key, and grants nothing.
    ///
    /// The holder loses the lease: its fenced writes and its next renewal are refused. Work that
    /// was done runs again. Inside a transaction all this takes effect when the transaction
    /// commits.
    ///
    /// # Locking
    ///
    /// One statement: `SELECT … FOR UPDATE` of the row if it has this token, which waits for the
    /// transaction of a fenced write, at most for the session's `lock_timeout`; then
    /// `UPDATE … SET expires_at = clock_timestamp()`. `synchronous_commit` is forced.
    ///
    /// # Errors
    ///
    /// [`Error::MissingTable`] (42P01), [`Error::MissingRights`] (42501), [`Error::Standby`],
    /// [`Error::Database`], such as 55P03 after `lock_timeout`.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the key may be free or not.
    pub async fn free<C: Connection>(&self, conn: &mut C, row: &Row) -> Result<bool, Error> {
        self.free_on(conn.pg(), row).await
    }

    pub(crate) async fn free_on<D: Queries>(&self, conn: &mut D, row: &Row) -> Result<bool, Error> {
        let hash = Value::Hash(row.key_hash);
        let values = [
            hash,
            Value::Number(random().cast_signed()),
            Value::Number(row.token.0),
        ];
        match count(conn, self.named.texts.get(Form::Free), &values).await {
            Ok(rows) => Ok(rows > 0),
            Err(error) => {
                let pattern = row.pattern.clone();
                let lock = pattern.unwrap_or_else(|| name_of(&row.key_hash));
                Err(self.explain(conn, error, lock.into()).await)
            }
        }
    }

    /// Sets the holder's data, or erases it; `false` if the lease is not held any more.
    ///
    /// # Locking
    ///
    /// One statement locks the row (`SELECT … FOR NO KEY UPDATE`), then runs
    /// `UPDATE … SET data = …` if this grant holds it.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release); [`Error::Invalid`] for more than 1,024 bytes, and for NUL.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the data is set or not.
    pub async fn set_data<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        data: Option<&str>,
    ) -> Result<bool, Error> {
        self.set_data_on(conn.pg(), lease, data).await
    }

    pub(crate) async fn set_data_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        data: Option<&str>,
    ) -> Result<bool, Error> {
        if let Some(reason) = data.and_then(wrong_data) {
            let lock = lease.name();
            return Err(Error::Invalid { lock, reason });
        }
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let [hash, grant, token] = lease.values();
        let values = [hash, grant, token, Value::Text(data)];
        let is_held = self.affects(conn, lease, Form::SetData, &values).await?;
        if !is_held {
            lease.hold.lose();
        }
        Ok(is_held)
    }

    /// Releases a lease; `false` if the row is gone, done, or another grant's. A second release
    /// returns the same.
    ///
    /// # Locking
    ///
    /// `UPDATE … SET expires_at = clock_timestamp(), key = NULL, data = NULL` if the row is this
    /// grant's. It does not wait for the disk: if the server crashes and loses the release, the key
    /// stays taken until the ttl is over.
    ///
    /// # Errors
    ///
    /// [`Error::InTransaction`] inside a transaction, which could undo it; [`Error::MissingTable`]
    /// (42P01), [`Error::MissingRights`] (42501), [`Error::Standby`], [`Error::BrokenConnection`],
    /// [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the lease may be released or not.
    pub async fn release<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        self.release_on(conn.pg(), lease).await
    }

    pub(crate) async fn release_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
    ) -> Result<bool, Error> {
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let values = lease.acquisition();
        let released = if self.is_default() {
            let text = self.named.texts.get(Form::Release);
            let statement: Statement<'_, (), 2> = Statement::new(text, &values);
            conn.count(statement).await.map(|rows| rows > 0)
        } else {
            count(conn, self.named.texts.get(Form::Release), &values)
                .await
                .map(|rows| rows > 0)
        };
        let released = match released {
            Ok(released) => Ok(released),
            Err(error) => Err(self.explain(conn, error, lease.name()).await),
        };
        lease.hold.lose();
        released
    }

    /// Ends the lease, and marks its key as done for `keep` from now; `false` if the lease was not
    /// held any more.
    pub(super) async fn keep_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let values = lease.values_for(keep)?;
        let kept = self.affects(conn, lease, Form::Keep, &values).await;
        lease.hold.lose();
        kept
    }

    /// Asks the server whether the lease is held: `SELECT … WHERE expires_at > clock_timestamp()`.
    pub(crate) async fn holds_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
    ) -> Result<bool, Error> {
        self.affects(conn, lease, Form::Holds, &lease.values())
            .await
    }

    /// Whether the statement found or changed the lease's row.
    pub(super) async fn affects<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        form: Form,
        values: &[Value<'_>],
    ) -> Result<bool, Error> {
        match count(conn, self.named.texts.get(form), values).await {
            Ok(rows) => Ok(rows > 0),
            Err(error) => Err(self.explain(conn, error, lease.name()).await),
        }
    }
}

/// The identities of grants, as the arrays of a statement about many.
struct Arrays {
    keys: Vec<Vec<u8>>,
    grants: Vec<i64>,
    tokens: Vec<i64>,
}

impl Arrays {
    fn of(leases: &[Granted]) -> Self {
        let leases = || leases.iter().map(|granted| &granted.lease);
        Self {
            keys: leases().map(|lease| lease.key_hash.to_vec()).collect(),
            grants: leases().map(|lease| lease.grant_id).collect(),
            tokens: leases().map(|lease| lease.token.get()).collect(),
        }
    }

    fn with<'v>(&'v self, numbers: &'v [i64]) -> [Value<'v>; 4] {
        [
            Value::Hashes(&self.keys),
            Value::Numbers(&self.grants),
            Value::Numbers(&self.tokens),
            Value::Numbers(numbers),
        ]
    }
}

/// The place of a row among those that were asked for, from 0.
fn place(nth: i64) -> usize {
    usize::try_from(nth - 1).unwrap_or(usize::MAX)
}

/// Renews leases of one table by one statement, each for its ttl from now, without waiting for a
/// locked row: not for a [`fence`](Lease::fence), only for statements that change the row. One
/// answer for each, in their order.
pub(super) async fn renew_all<D: Queries>(
    conn: &mut D,
    leases: &[Granted],
) -> Result<Vec<Renewed>, Error> {
    let Some(Granted { lease: first, .. }) = leases.first() else {
        return Ok(Vec::new());
    };
    require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, first.name()))?;
    let ttls: Vec<_> = leases
        .iter()
        .map(|granted| milliseconds(granted.ttl))
        .collect();
    let (arrays, table) = (Arrays::of(leases), &first.table);
    let values = arrays.with(&ttls);
    let statement = Statement::<RenewColumns>::new(table.named.texts.get(Form::Renew), &values);
    let rows: Vec<(i64, bool, bool)> = match conn.load(statement).await {
        Ok(rows) => rows,
        Err(error) => return Err(table.explain(conn, error, first.name()).await),
    };
    let mut answers = vec![Renewed::Gone; leases.len()];
    for (nth, is_renewed, is_held) in rows {
        if let Some((answer, granted)) = answers.get_mut(place(nth)).zip(leases.get(place(nth))) {
            *answer = match (is_renewed, is_held) {
                (true, _) => Renewed::For(granted.ttl),
                (false, true) => Renewed::Busy,
                (false, false) => Renewed::Gone,
            };
        }
    }
    Ok(answers)
}

/// How the transactions have ended in which these leases of one table were completed, without
/// waiting for them. One answer for each, in their order.
pub(super) async fn settled<D: Queries>(
    conn: &mut D,
    leases: &[Granted],
) -> Result<Vec<Settled>, Error> {
    let Some(Granted { lease: first, .. }) = leases.first() else {
        return Ok(Vec::new());
    };
    let inside = |granted: &Granted| granted.lease.hold.inside();
    let transactions = leases.iter().map(|granted| inside(granted).transaction);
    let transactions: Vec<_> = transactions.collect();
    let (arrays, table) = (Arrays::of(leases), &first.table);
    let values = arrays.with(&transactions);
    let statement = Statement::<SettleColumns>::new(table.named.texts.get(Form::Settled), &values);
    let rows: Vec<(i64, Option<String>, Option<bool>)> = match conn.load(statement).await {
        Ok(rows) => rows,
        Err(error) => return Err(table.explain(conn, error, first.name()).await),
    };
    let mut answers = vec![Settled::Open; leases.len()];
    for (nth, transaction, is_kept) in rows {
        if let Some((answer, granted)) = answers.get_mut(place(nth)).zip(leases.get(place(nth))) {
            let is_nested = inside(granted).is_nested;
            *answer = match (transaction.as_deref(), is_kept) {
                (Some("in progress"), _) => Settled::Open,
                (_, Some(true)) => Settled::Committed,
                // The key was done, and its row is gone. A savepoint can have been rolled back in
                // the transaction, and then another can have been granted the key.
                (Some("committed"), None) if !is_nested => Settled::Committed,
                // It was rolled back, as a whole or to a savepoint. If the server does not know it,
                // the row says so.
                _ => Settled::RolledBack,
            };
        }
    }
    Ok(answers)
}
