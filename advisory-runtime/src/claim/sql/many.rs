//! Statements about many claims. Their values are arrays, so the text does not depend on the number
//! of claims.

use super::end_columns::{Locked, MANY, Pause, TypeSets, end_of, millis, transaction};
use super::fragments::{Claimable, FAILED_NOW, Fragments, PARKED, RENEWED, has_last_attempt};
use super::statement::of_claim;
use super::text_cache::{Form, SpentWay, Text, cached};
use super::{Fragment, Wanted};
use crate::claim::Claimed;
use crate::claim::key::RowKey;
use crate::claim::optional_column::MaybeColumn;
use crate::claim::table::{Claim, ttl};
use crate::rows::End;
use crate::sql::put;
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Nullable, SmallInt, Text as SqlText, Untyped};
use std::borrow::Cow;
use std::sync::Arc;

/// The keys of rows, as arrays.
type Keys<'a, T> = <<T as Claim>::KeyValue<'a> as RowKey<<T as Claim>::Key>>::Arrays;

/// A statement about rows by their keys.
pub(in crate::claim) struct ManyKeys<'a, T: Claim> {
    text: Arc<Text>,
    keys: Keys<'a, T>,
    /// The `locked_by` of each claim.
    holders: Vec<&'a str>,
    /// The transactions to look up.
    transactions: Vec<i64>,
    /// The `locked_by` of a new claim.
    holder: Cow<'a, str>,
    wanted: Wanted<'a>,
    ends: Vec<i16>,
    messages: Vec<Option<&'a str>>,
    /// In milliseconds; `None` for the backoff.
    pauses: Vec<Option<i64>>,
    /// The columns that the row's type sets when a row is completed, and when it fails.
    completed: Option<Fragment<'static>>,
    failed: Option<Fragment<'static>>,
}

/// A claim to end, and the message of a failure.
pub(in crate::claim) type OneEnd<'a, T> = (&'a Claimed<T>, End, Option<&'a str>);

fn keys_of<'a, T: Claim>(jobs: impl Iterator<Item = &'a T>) -> Keys<'a, T> {
    <T::KeyValue<'a> as RowKey<T::Key>>::arrays(jobs.map(T::key))
}

impl<'a, T: Claim> ManyKeys<'a, T> {
    fn new(text: Arc<Text>, jobs: &[&'a Claimed<T>]) -> Self {
        Self {
            text,
            keys: keys_of(jobs.iter().map(|job| &***job)),
            holders: jobs.iter().map(|job| job.locked_by()).collect(),
            transactions: Vec::new(),
            holder: "".into(),
            wanted: Wanted::default(),
            ends: Vec::new(),
            messages: Vec::new(),
            pauses: Vec::new(),
            completed: None,
            failed: None,
        }
    }

    /// Renews claims without waiting for locked rows.
    pub(in crate::claim) fn renew(jobs: &[&'a Claimed<T>]) -> Self {
        let text = cached::<T>(Form::RenewMany, || {
            let mut fragments = Fragments::of::<T>();
            fragments.add("set", RENEWED);
            fragments.fill(include_str!("renew_all.sql"))
        });
        Self::new(text, jobs)
    }

    /// Looks up the outcome of the transactions that ended these claims.
    pub(in crate::claim) fn settled(jobs: &[&'a Claimed<T>]) -> Self {
        let text = cached::<T>(Form::Settled, || {
            Fragments::of::<T>().fill(include_str!("settled.sql"))
        });
        Self {
            transactions: jobs
                .iter()
                .map(|job| job.hold().inside().transaction)
                .collect(),
            ..Self::new(text, jobs)
        }
    }

    /// Ends these rows, and others among the first ones that have no attempt left.
    pub(in crate::claim) fn spent(
        worker: &'a str,
        met: &'a [T],
        limit: u32,
        way: SpentWay,
        wanted: Wanted<'a>,
    ) -> Self {
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
        Self {
            keys: keys_of(met.iter().take(most)),
            holder: of_claim::<T>(worker),
            wanted,
            failed: Some(Box::new(T::failed())),
            ..Self::new(text, &[])
        }
    }

    pub(in crate::claim) fn end(
        ends: &[OneEnd<'a, T>],
        changes: &'a [Fragment<'a>],
        locked: Locked,
    ) -> Self {
        let kinds = ends
            .iter()
            .fold(0, |kinds, (_, end, _)| kinds | 1 << kind(end_of::<T>(*end)));
        let failed: Fragment<'static> = Box::new(T::failed());
        let sets_failed = !failed.is_noop(&Pg).unwrap_or(false);
        let has_changes = !changes.is_empty();
        let form = Form::EndMany {
            kinds,
            locked,
            sets_failed: sets_failed && !(has_changes && kinds & RETRY == 0),
            has_changes,
        };
        let text = cached::<T>(form, || {
            let mut fragments = Fragments::of::<T>();
            // The stronger lock conflicts with open transactions that refer to a row to delete.
            let lock = if kinds & DELETE == 0 {
                "NO KEY UPDATE"
            } else {
                "UPDATE"
            };
            fragments.add("lock", lock);
            let [values, columns] = values_of(kinds);
            fragments.add("values", values);
            fragments.add("value_columns", columns);
            let is_at_once = locked == Locked::Fail;
            fragments.add_ends::<T>(kinds, sets_failed, has_changes, is_at_once);
            let skip = if locked == Locked::Skip {
                " SKIP LOCKED"
            } else {
                ""
            };
            fragments.add("skip_locked", skip);
            fragments.fill(if is_at_once {
                include_str!("end_all_at_once.sql")
            } else {
                include_str!("end_all.sql")
            })
        });
        let jobs: Vec<&Claimed<T>> = ends.iter().map(|(job, ..)| *job).collect();
        let possible = ends.iter().map(|(_, end, _)| end_of::<T>(*end));
        let pause = |end| match end {
            End::Retry { after } => after.map(millis),
            _ => None,
        };
        Self {
            ends: possible.clone().map(|end| i16::from(kind(end))).collect(),
            messages: ends.iter().map(|(.., message)| *message).collect(),
            pauses: possible.map(pause).collect(),
            wanted: Wanted {
                changes,
                ..Wanted::default()
            },
            completed: Some(Box::new(T::completed())),
            failed: Some(failed),
            ..Self::new(text, &jobs)
        }
    }
}

/// Each kind of end, with the name of its part of the statement.
const ENDS: [(End, &str); 5] = [
    (End::Complete, "completed"),
    (End::Fail, "failed"),
    (End::Retry { after: None }, "retried"),
    (End::Release, "released"),
    (End::Delete, "deleted"),
];

/// Returns the index of an end in `ENDS`.
const fn kind(end: End) -> u8 {
    match end {
        End::Complete => 0,
        End::Fail => 1,
        End::Retry { .. } => 2,
        End::Release => 3,
        End::Delete => 4,
    }
}

const RETRY: u8 = 1 << kind(End::Retry { after: None });
const DELETE: u8 = 1 << kind(End::Delete);

/// Returns the ends of these kinds.
fn ends_of(kinds: u8) -> impl Iterator<Item = (End, &'static str)> {
    debug_assert_eq!(
        kinds >> ENDS.len(),
        0,
        "each end has a part of the statement"
    );
    let ends = ENDS.into_iter();
    ends.filter(move |(end, _)| kinds & 1 << kind(*end) != 0)
}

/// Returns the arrays that ends of these kinds need, and their columns. Unneeded ones are left out,
/// because each costs the server as much as the keys.
fn values_of(kinds: u8) -> [&'static str; 2] {
    let have_message = ends_of(kinds).any(|(end, _)| end.has_message());
    match (kinds.is_power_of_two(), have_message) {
        (true, false) => ["", ""],
        (true, true) => [", unnest(:messages), unnest(:pauses)", ", message, pause"],
        (false, false) => [", unnest(:ends)", ", kind"],
        (false, true) => [
            ", unnest(:ends), unnest(:messages), unnest(:pauses)",
            ", kind, message, pause",
        ],
    }
}

/// The claim is held, and lasts for longer than the statement may take.
const IS_HELD: &str = " AND {by} = {claim_holder} AND {until} > ({clock} + CAST('{prompt} ms' AS interval)) \
     AND (SELECT {is_durable} AND set_config('lock_timeout', '{lock_timeout}ms', true) IS NOT NULL)";

impl Fragments {
    /// Adds a statement for each kind of end, and the answer. The caller's changes replace those of
    /// the row's type, except when a retry fails the row at the last attempt.
    fn add_ends<T: Claim>(
        &mut self,
        kinds: u8,
        sets_failed: bool,
        has_changes: bool,
        is_at_once: bool,
    ) {
        let [is_held, returning] = if is_at_once {
            [
                IS_HELD,
                " RETURNING advisory_claim.nth + {is_prompt} AS nth",
            ]
        } else {
            ["", ""]
        };
        let (mut statements, mut answers) = (String::new(), Vec::new());
        let of_kind = |number: u8| {
            if kinds.is_power_of_two() {
                return String::new();
            }
            format!(" AND advisory_claim.kind = {number}")
        };
        let mut statement = |name: &str, change: &str, rows: &str| {
            put!(
                statements,
                ", advisory_{name} AS ({change} advisory_claim \
                 WHERE ({{key}}) = ({{claim_key}}){rows}{is_held}{returning})"
            );
            answers.push(format!("SELECT nth FROM advisory_{name}"));
        };
        let update = |set: String| format!("UPDATE {{table}} SET {set} FROM");
        for (end, name) in ends_of(kinds) {
            let rows = of_kind(kind(end));
            if end == End::Delete {
                statement(name, "DELETE FROM {table} USING", &rows);
                continue;
            }
            let set = Self::ended::<T>(end, Pause::Bound, MANY);
            if end == (End::Retry { after: None }) && sets_failed && has_last_attempt::<T>() {
                let mut failed = vec!["{until_column} = NULL", "{by_column} = NULL", FAILED_NOW];
                failed.extend(
                    T::ErrorMessage::COLUMN
                        .map(|_| "{error_column} = COALESCE(advisory_claim.message, {error})"),
                );
                let failed = failed.join(", ");
                let is_last = format!("{rows} AND COALESCE({{is_spent}}, false)");
                statement("last", &update(failed + ":failed"), &is_last);
                let has_more = format!("{rows} AND NOT COALESCE({{is_spent}}, false)");
                statement(name, &update(set + ":changes"), &has_more);
            } else {
                let changes = match TypeSets::at(end) {
                    _ if has_changes => ":changes",
                    TypeSets::Completed => ":completed",
                    TypeSets::Failed => ":failed",
                    TypeSets::FailedAtLast | TypeSets::Nothing => "",
                };
                statement(name, &update(set + changes), &rows);
            }
        }
        self.add("statements", statements);
        self.add("ended", answers.join(" UNION ALL "));
        if is_at_once {
            let most = ttl::<T>().as_millis() / 4;
            self.add("prompt", most.to_string());
            self.add("lock_timeout", most.clamp(1, 100).to_string());
        }
    }
}

/// Returns the query for whether triggers of the table can change or replace what an end writes.
pub(in crate::claim) fn triggers<T: Claim>() -> String {
    Fragments::of::<T>().fill(include_str!("triggers.sql"))
}

/// Returns the query for the id of the open transaction, which also limits its idle time.
pub(in crate::claim) fn transaction_of<T: Claim>() -> String {
    format!("SELECT {}", transaction::<T>())
}

impl<T: Claim> QueryFragment<Pg> for ManyKeys<'_, T> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.text.first());
        for (name, sql) in self.text.values() {
            match name {
                "keys" => self.keys.walk_ast(out.reborrow())?,
                "holders" => out.push_bind_param::<Array<SqlText>, _>(&self.holders)?,
                "transactions" => out.push_bind_param::<Array<BigInt>, _>(&self.transactions)?,
                "holder" => out.push_bind_param::<SqlText, _>(&self.holder)?,
                "ends" => out.push_bind_param::<Array<SmallInt>, _>(&self.ends)?,
                "messages" => out.push_bind_param::<Array<Nullable<SqlText>>, _>(&self.messages)?,
                "pauses" => out.push_bind_param::<Array<Nullable<BigInt>>, _>(&self.pauses)?,
                "completed" | "failed" => {
                    let changes = if name == "completed" {
                        &self.completed
                    } else {
                        &self.failed
                    };
                    if let Some(changes) = changes
                        && !changes.is_noop(&Pg)?
                    {
                        out.push_sql(", ");
                        changes.walk_ast(out.reborrow())?;
                    }
                }
                name => self.wanted.walk_ast(name, out.reborrow())?,
            }
            out.push_sql(sql);
        }
        Ok(())
    }
}

impl<T: Claim> Query for ManyKeys<'_, T> {
    type SqlType = Untyped;
}

/// A statement is prepared under its text.
impl<T: Claim> QueryId for ManyKeys<'_, T> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}
