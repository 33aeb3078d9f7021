//! What can `pool = …` be?

use super::store::Store;
use super::{Held, Leases, Request};
use crate::Error;
use std::sync::Arc;

/// What `pool = …` takes: a pool of bb8 or deadpool, whose leases are in `public.advisory_lease`, or [`Leases`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` gives a lease no connections",
    label = "expected a pool of bb8 or deadpool, or `advisory_runtime::lease::Leases`",
    note = "for a pool of your own, write `Leases::new(pool)`"
)]
#[cfg_attr(
    not(all(feature = "bb8", feature = "deadpool")),
    diagnostic::on_unimplemented(
        note = "for these pools, enable the feature `bb8` or `deadpool` of `advisory-runtime`"
    )
)]
pub trait Source {
    /// Where the leases are.
    type Store: Store;

    /// The leases.
    fn leases(&self) -> Leases<Self::Store>;
}

impl<S: Store> Source for Leases<S> {
    type Store = S;

    fn leases(&self) -> Self {
        self.clone()
    }
}

impl<S: Source + ?Sized> Source for &S {
    type Store = S::Store;

    fn leases(&self) -> Leases<S::Store> {
        S::leases(self)
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    type Store = S::Store;

    fn leases(&self) -> Leases<S::Store> {
        S::leases(self)
    }
}

#[cfg(feature = "bb8")]
impl<M: bb8::ManageConnection> Source for bb8::Pool<M>
where
    Self: Store,
{
    type Store = Self;

    fn leases(&self) -> Leases<Self> {
        Leases::new(self.clone())
    }
}

#[cfg(feature = "deadpool")]
impl<M: deadpool::managed::Manager> Source for deadpool::managed::Pool<M>
where
    Self: Store,
{
    type Store = Self;

    fn leases(&self) -> Leases<Self> {
        Leases::new(self.clone())
    }
}

/// What the attribute's expansion calls.
#[doc(hidden)]
pub async fn acquire_at(source: &impl Source, request: Request) -> Result<Held, Error> {
    source.leases().followed(request).await
}

/// [`Table::sweep`](super::Table::sweep), on a connection of the pool: removes all rows of the table that have expired.
///
/// # Errors
///
/// As [`Table::sweep`](super::Table::sweep), and [`Error::Pool`].
///
/// # Cancel safety
///
/// Cancel safe: some rows are removed and some are not.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, lease::{self, Source}};
///
/// async fn nightly(pool: impl Source) -> Result<(), Error> {
///     println!("{} leases had expired", lease::sweep(&pool).await?);
///     Ok(())
/// }
/// ```
pub async fn sweep(source: &impl Source) -> Result<usize, Error> {
    let leases = source.leases();
    leases.store.sweep(&leases.table).await
}
