//! The values that `pool = …` takes.

use super::store::Store;
use super::{Error, LeaseGuard, Leases, Request};
use std::sync::Arc;

/// A value for `pool = …`: [`Leases`], or a pool of bb8 or deadpool for leases in
/// `public.advisory_lease`.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::lease::{Error, LeaseGuard, Request, Source};
///
/// /// For a pool, or for `Leases` of a table of yours.
/// async fn acquire(source: &impl Source, day: &str) -> Result<LeaseGuard, Error> {
///     source.leases().acquire(Request::text(format!("report:{day}"))).await
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't give a lease its connections",
    label = "expected a pool of bb8 or deadpool, or `advisory_runtime::lease::Leases`",
    note = "a lease takes the pool itself, because each of its statements takes a connection of its own",
    note = "for a pool of your own, write `Leases::new(pool)`; a pool of r2d2 is for `advisory_runtime::blocking::lease`"
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

/// For the expansion.
pub async fn acquire_at(source: &impl Source, request: Request) -> Result<LeaseGuard, Error> {
    source.leases().acquire_recorded(request, None).await
}

/// Removes all expired rows with [`Table::sweep`](super::Table::sweep), on a connection of the
/// pool.
pub async fn sweep(source: &impl Source) -> Result<usize, Error> {
    let leases = source.leases();
    leases.store.sweep(&leases.table).await
}
