//! Statements about many rows. Their values are arrays, so the text does not depend on the number of
//! rows.

use super::Wanted;
use super::fragments::{Claimable, Fragments, PARKED, RENEWED};
use super::statement::{Statement, Value, of_claim};
use super::text_cache::{Form, SpentWay, cached};
use crate::claim::Claimed;
use crate::claim::key::RowKey;
use crate::claim::table::Claim;
use diesel::sql_types::{BigInt, Bool, Interval, Nullable, Text};

/// The keys of rows, as arrays.
pub(super) type Keys<'a, T> = <<T as Claim>::KeyValue<'a> as RowKey<<T as Claim>::Key>>::Arrays;

pub(super) fn keys_of<'a, T: Claim>(rows: impl Iterator<Item = &'a T>) -> Keys<'a, T> {
    <T::KeyValue<'a> as RowKey<T::Key>>::arrays(rows.map(T::key))
}

impl<'a> Value<'a> {
    /// Returns the `locked_by` of each claim.
    pub(super) fn holders<T: Claim>(jobs: impl Iterator<Item = &'a Claimed<T>>) -> Self {
        Self::Texts(jobs.map(|job| Some(job.locked_by())).collect())
    }
}

/// The number of a claim, from 1, the time that it lasts if it was renewed, and otherwise whether it
/// was held at the last commit.
type RenewColumns = (BigInt, Nullable<Interval>, Bool);

/// Renews claims without waiting for locked rows.
pub(in crate::claim) fn renew<'a, T: Claim>(
    jobs: &'a [Claimed<T>],
) -> Statement<'a, T, Keys<'a, T>, RenewColumns> {
    let text = cached::<T>(Form::RenewMany, || {
        let mut fragments = Fragments::of::<T>();
        fragments.add("set", RENEWED);
        fragments.fill(include_str!("renew_all.sql"))
    });
    let keys = keys_of(jobs.iter().map(|job| &**job));
    Statement::new(text, keys).with("holders", Value::holders(jobs.iter()))
}

/// The number of a claim, from 1, the state of the transaction that ended it, which is NULL if the
/// server does not know it, and the `locked_by` of the claim that holds the row.
type SettledColumns = (BigInt, Nullable<Text>, Nullable<Text>);

/// Looks up the outcome of the transactions that ended these claims.
pub(in crate::claim) fn settled<'a, T: Claim>(
    jobs: &'a [Claimed<T>],
) -> Statement<'a, T, Keys<'a, T>, SettledColumns> {
    let text = cached::<T>(Form::Settled, || {
        Fragments::of::<T>().fill(include_str!("settled.sql"))
    });
    let transactions = jobs.iter().map(|job| Some(job.hold().inside().transaction));
    Statement::new(text, keys_of(jobs.iter().map(|job| &**job)))
        .with("transactions", Value::Numbers(transactions.collect()))
}

/// Ends these rows, and others among the first ones that have no attempt left.
pub(in crate::claim) fn spent<'a, T: Claim>(
    worker: &'a str,
    met: &'a [T],
    limit: u32,
    way: SpentWay,
    wanted: Wanted<'a>,
) -> Statement<'a, T, Keys<'a, T>> {
    let text = cached::<T>(Form::Spent { limit, way }, || {
        let mut fragments = Fragments::of::<T>();
        fragments.select::<T>(Claimable::Due, "{columns}", limit);
        let is_free = Fragments::is_claimable::<T>(Claimable::ByKey);
        fragments.add("is_free", is_free);
        let set = match way {
            SpentWay::Fails => Fragments::spent::<T>(true) + ":failed",
            SpentWay::FailsWithoutText => Fragments::spent::<T>(false) + ":failed",
            SpentWay::Parks => PARKED.to_owned(),
        };
        fragments.add("set", set);
        fragments.fill(include_str!("spent.sql"))
    });
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    Statement::new(text, keys_of(met.iter().take(most)))
        .with("holder", Value::Text(of_claim::<T>(worker)))
        .with("failed", Value::Changes(Box::new(T::failed())))
        .wanted(wanted)
}

/// Returns the query for whether triggers of the table can change or replace what an end writes.
pub(in crate::claim) fn triggers<T: Claim>() -> String {
    Fragments::of::<T>().fill(include_str!("triggers.sql"))
}
