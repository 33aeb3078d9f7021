//! A statement: its text, and the values in it.

use super::form::{self, Form, Text};
use super::{Fragment, Wanted, text};
use crate::claim::Claimed;
use crate::claim::column_type::HolderType as _;
use crate::claim::key::RowKey;
use crate::claim::table::Claim;
use crate::random::random;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Nullable, Text as SqlText, Untyped};
use diesel::{Expression, QueryResult};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

/// A statement, and the SQL types of its columns. `NUMBER` is above zero for a text that only the
/// type of row changes: Diesel then finds the prepared statement without the text.
pub(in crate::claim) struct Statement<'a, T: Claim, K, Columns = Untyped, const NUMBER: u8 = 0> {
    text: Arc<Text>,
    /// A key, or the arrays of several keys.
    key: K,
    /// The other values, by their names in the file.
    values: Vec<(&'static str, Value<'a>)>,
    wanted: Wanted<'a>,
    selection: T::Selection,
    columns: PhantomData<fn() -> Columns>,
}

/// A value of a statement, or an array with one for each row.
pub(in crate::claim) enum Value<'a> {
    Text(Cow<'a, str>),
    Texts(Vec<Option<&'a str>>),
    Number(i64),
    Numbers(Vec<Option<i64>>),
    /// Columns that the row's type sets.
    Changes(Fragment<'static>),
}

/// The text of a type of row with this number.
#[derive(Debug)]
pub(in crate::claim) struct Fixed<T, const NUMBER: u8>(PhantomData<fn() -> T>);

impl<'a, T: Claim, K, Columns, const NUMBER: u8> Statement<'a, T, K, Columns, NUMBER> {
    pub(in crate::claim) fn new(form: Form, key: K) -> Self {
        Self {
            text: form::text::<T>(form),
            key,
            values: Vec::new(),
            wanted: Wanted::default(),
            selection: T::selection(),
            columns: PhantomData,
        }
    }

    pub(in crate::claim) fn with(mut self, name: &'static str, value: Value<'a>) -> Self {
        self.values.push((name, value));
        self
    }

    pub(in crate::claim) fn wanted(mut self, wanted: Wanted<'a>) -> Self {
        self.wanted = wanted;
        match wanted.position {
            Some(position) => self.with("position", Value::Text(position.into())),
            None => self,
        }
    }

    /// The statement changes the claim with this `locked_by`.
    pub(in crate::claim) fn held_by(self, locked_by: &'a str) -> Self {
        self.with("holder", Value::Text(locked_by.into()))
    }

    /// The statement claims one row.
    pub(in crate::claim) fn claim_one(self, worker: &'a str, wanted: Wanted<'a>) -> Self {
        let holder = Value::Text(of_claim::<T>(worker).into());
        self.with("holder", holder).wanted(wanted)
    }

    /// The statement claims several rows. Their `locked_by` differ in the last part of the UUID.
    pub(in crate::claim) fn claim_many(self, worker: &'a str, wanted: Wanted<'a>) -> Self {
        let mut holder = of_claim::<T>(worker);
        holder.truncate(holder.len() - 12);
        self.with("holder", Value::Text(holder.into()))
            .wanted(wanted)
    }
}

/// The keys of rows, as arrays.
pub(in crate::claim) type Keys<'a, T> =
    <<T as Claim>::KeyValue<'a> as RowKey<<T as Claim>::Key>>::Arrays;

pub(in crate::claim) fn keys_of<'a, T: Claim>(rows: impl Iterator<Item = &'a T>) -> Keys<'a, T> {
    <T::KeyValue<'a> as RowKey<T::Key>>::arrays(rows.map(T::key))
}

impl<'a> Value<'a> {
    /// Returns the `locked_by` of each claim.
    pub(in crate::claim) fn holders<T: Claim>(jobs: impl Iterator<Item = &'a Claimed<T>>) -> Self {
        Self::Texts(jobs.map(|job| Some(job.locked_by())).collect())
    }
}

/// The number of a claim, from 1, the state of the transaction that ended it, which is NULL if the
/// server does not know it, and the `locked_by` of the claim that holds the row.
type SettledColumns = (BigInt, Nullable<SqlText>, Nullable<SqlText>);

/// Looks up the outcome of the transactions that ended these claims.
pub(in crate::claim) fn settled<T: Claim>(
    jobs: &[Claimed<T>],
) -> Statement<'_, T, Keys<'_, T>, SettledColumns> {
    let transactions = jobs.iter().map(|job| Some(job.hold().inside().transaction));
    Statement::new(Form::Settled, keys_of(jobs.iter().map(|job| &**job)))
        .with("transactions", Value::Numbers(transactions.collect()))
}

/// Makes the `locked_by` of one new claim. The server would take three times as long.
fn of_claim<T: Claim>(worker: &str) -> String {
    // A UUID of version 4, with the variant of RFC 9562.
    let (mut high, low) = ((random() & !0xf000) | 0x4000, (random() >> 2) | (1 << 63));
    let mut holder = String::with_capacity(worker.len() + 37);
    if <T::LockedBy as Expression>::SqlType::IS_NAMED {
        holder.push_str(&text(worker));
        holder.push('#');
    }
    // `format!` would take longer than all the rest.
    for at in 0..32 {
        if matches!(at, 8 | 12 | 16 | 20) {
            holder.push('-');
        }
        if at == 16 {
            high = low;
        }
        holder.push(char::from(
            b"0123456789abcdef"[usize::from((high >> 60) as u8)],
        ));
        high <<= 4;
    }
    holder
}

impl<T: Claim, K: QueryFragment<Pg>, Columns, const NUMBER: u8> QueryFragment<Pg>
    for Statement<'_, T, K, Columns, NUMBER>
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.text.first());
        for (name, sql) in self.text.values() {
            match name {
                "key" | "keys" => self.key.walk_ast(out.reborrow())?,
                "selection" => self.selection.walk_ast(out.reborrow())?,
                "conditions" => put_each(self.wanted.conditions, " AND (", ")", out.reborrow())?,
                "changes" => put_each(self.wanted.changes, ", ", "", out.reborrow())?,
                name => {
                    for (_, value) in self.values.iter().filter(|(value, _)| *value == name) {
                        value.put(out.reborrow())?;
                    }
                }
            }
            out.push_sql(sql);
        }
        Ok(())
    }
}

impl Value<'_> {
    fn put<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        match self {
            Self::Text(text) => out.push_bind_param::<SqlText, _>(text),
            Self::Texts(texts) => out.push_bind_param::<Array<Nullable<SqlText>>, _>(texts),
            Self::Number(number) => out.push_bind_param::<BigInt, _>(number),
            Self::Numbers(numbers) => out.push_bind_param::<Array<Nullable<BigInt>>, _>(numbers),
            Self::Changes(changes) => put_each(std::slice::from_ref(changes), ", ", "", out),
        }
    }
}

fn put_each<'b>(
    fragments: &'b [Fragment<'_>],
    before: &str,
    behind: &str,
    mut out: AstPass<'_, 'b, Pg>,
) -> QueryResult<()> {
    for fragment in fragments {
        if !fragment.is_noop(&Pg)? {
            out.push_sql(before);
            fragment.walk_ast(out.reborrow())?;
            out.push_sql(behind);
        }
    }
    Ok(())
}

impl<T: Claim, K, Columns, const NUMBER: u8> Query for Statement<'_, T, K, Columns, NUMBER> {
    type SqlType = Columns;
}

/// A statement is prepared under its text, like Diesel's own updates, or under its number.
impl<T: Claim, K, Columns, const NUMBER: u8> QueryId for Statement<'_, T, K, Columns, NUMBER> {
    type QueryId = Fixed<T, NUMBER>;
    const HAS_STATIC_QUERY_ID: bool = NUMBER > 0;
}
