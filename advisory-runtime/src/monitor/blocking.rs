//! The functions of [`blocking::monitor`](crate::blocking::monitor): live locks on Diesel's blocking connections.

use super::signal::{Answer, Signal};
use super::{Backend, Locks, Names, refresh, sql};
use crate::Error;
use crate::connection::blocking::Connection;
use crate::driver::answered;
use diesel::RunQueryDsl;
use diesel::sql_types::{BigInt, Integer, Nullable};

/// Lists the advisory locks of the connection's database: see [`monitor::locks`](crate::monitor::locks).
///
/// # Errors
///
/// [`Error::Database`].
pub fn locks<C: Connection>(conn: &mut C, names: &Names) -> Result<Locks, Error> {
    let conn = conn.pg();
    answered(refresh(conn))?;
    let rows = diesel::sql_query(sql::LOCKS).load(conn);
    Ok(Locks::of(rows.map_err(Error::Database)?, names))
}

/// Lists every lease of a table that is held: see [`monitor::leases`](crate::monitor::leases).
///
/// # Errors
///
/// [`Error::Database`].
#[cfg(feature = "diesel-async")]
pub fn leases<C: Connection>(
    conn: &mut C,
    table: &crate::lease::Table,
    names: &Names,
) -> Result<Vec<super::Lease>, Error> {
    Ok(super::leases::named(table.list_blocking(conn.pg())?, names))
}

/// Counts the rows of a table by the states of their claims: see [`monitor::claims`](crate::monitor::claims).
///
/// # Errors
///
/// [`Error::Database`].
#[cfg(feature = "diesel-async")]
pub fn claims<T: crate::claim::Claim, C: Connection>(conn: &mut C) -> Result<super::Claims, Error> {
    crate::claim::counts_blocking::<T>(conn.pg())
}

/// Cancels the statement that a backend runs: see [`monitor::cancel`](crate::monitor::cancel).
///
/// # Errors
///
/// [`Error::Database`].
pub fn cancel<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    signal(conn, sql::CANCEL, backend)
}

/// Terminates a backend's session: see [`monitor::terminate`](crate::monitor::terminate).
///
/// # Errors
///
/// [`Error::Database`].
pub fn terminate<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    signal(conn, sql::TERMINATE, backend)
}

fn signal<C: Connection>(conn: &mut C, text: &str, backend: &Backend) -> Result<Signal, Error> {
    let conn = conn.pg();
    answered(refresh(conn))?;
    let answers: Vec<Answer> = diesel::sql_query(text)
        .bind::<Integer, _>(backend.pid)
        .bind::<Nullable<BigInt>, _>(backend.started)
        .load(conn)
        .map_err(Error::Database)?;
    Ok(Signal::of(&answers))
}
