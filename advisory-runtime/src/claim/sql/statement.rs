//! A statement: its text, and the values in it.

use super::form::{self, Form, Text};
use super::{Fragment, Wanted, text};
use crate::claim::Claimed;
use crate::claim::column_type::HolderType as _;
use crate::claim::key::{KeyValue as _, RowKey};
use crate::claim::table::Claim;
use crate::random::random;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Nullable, Text as SqlText, Untyped};
use diesel::{Expression, QueryResult};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

/// A statement, and the SQL types of its columns. `N` is above zero for a text that only `T`, the
/// type of row, changes: Diesel then finds the prepared statement without the text.
pub(in crate::claim) struct Statement<'a, Columns = Untyped, T = (), const N: u8 = 0> {
    text: Arc<Text>,
    /// The values by their names in the file.
    values: Vec<(&'static str, Value<'a>)>,
    wanted: Wanted<'a>,
    kind: PhantomData<fn() -> (Columns, T)>,
}

/// A value of a statement, or an array with one for each row.
pub(in crate::claim) enum Value<'a> {
    Text(Cow<'a, str>),
    Texts(Vec<Option<&'a str>>),
    Number(i64),
    Numbers(Vec<Option<i64>>),
    /// The values of a key's columns, or columns to read.
    Sql(Fragment<'a>),
    /// Columns that the row's type sets.
    Changes(Fragment<'static>),
}

impl<'a, Columns, T, const N: u8> Statement<'a, Columns, T, N> {
    pub(in crate::claim) fn of<R: Claim>(form: Form) -> Self {
        Self {
            text: form::text::<R>(form),
            values: Vec::new(),
            wanted: Wanted::default(),
            kind: PhantomData,
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

    pub(in crate::claim) fn changes(mut self, changes: &'a [Fragment<'a>]) -> Self {
        self.wanted.changes = changes;
        self
    }

    pub(in crate::claim) fn key(self, key: impl QueryFragment<Pg> + Send + Sync + 'a) -> Self {
        self.with("key", Value::Sql(Box::new(key)))
    }

    /// The statement is about these rows.
    pub(in crate::claim) fn keys<R: Claim>(self, rows: impl Iterator<Item = &'a R>) -> Self {
        let arrays = <R::KeyValue<'a> as RowKey<R::Key>>::arrays(rows.map(R::key));
        self.with("keys", Value::Sql(Box::new(arrays)))
    }

    /// The statement changes this claim.
    pub(in crate::claim) fn about<R: Claim>(self, job: &'a Claimed<R>) -> Self {
        self.key((**job).key().bound())
            .with("holder", Value::Text(job.locked_by().into()))
    }

    /// The statement claims one row, or several. The `locked_by` of several differ in the last part
    /// of the UUID.
    pub(in crate::claim) fn claim<R: Claim>(
        self,
        worker: &str,
        is_one: bool,
        wanted: Wanted<'a>,
    ) -> Self {
        let mut holder = of_claim(worker, <R::LockedBy as Expression>::SqlType::IS_NAMED);
        if !is_one {
            holder.truncate(holder.len() - 12);
        }
        self.with("holder", Value::Text(holder.into()))
            .with("selection", Value::Sql(Box::new(R::selection())))
            .wanted(wanted)
    }
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
pub(in crate::claim) fn settled<T: Claim>(jobs: &[Claimed<T>]) -> Statement<'_, SettledColumns> {
    let transactions = jobs.iter().map(|job| Some(job.hold().inside().transaction));
    Statement::of::<T>(Form::Settled)
        .keys(jobs.iter().map(|job| &**job))
        .with("transactions", Value::Numbers(transactions.collect()))
}

/// Makes the `locked_by` of one new claim. The server would take three times as long.
fn of_claim(worker: &str, is_named: bool) -> String {
    // A UUID of version 4, with the variant of RFC 9562.
    let (mut high, low) = ((random() & !0xf000) | 0x4000, (random() >> 2) | (1 << 63));
    let mut holder = String::with_capacity(worker.len() + 37);
    if is_named {
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

impl<Columns, T, const N: u8> QueryFragment<Pg> for Statement<'_, Columns, T, N> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(&self.text.first);
        for (name, sql) in &self.text.values {
            match &**name {
                "conditions" => put_each(self.wanted.conditions, " AND (", ")", out.reborrow())?,
                "changes" => put_each(self.wanted.changes, ", ", "", out.reborrow())?,
                name => {
                    let mut values = self.values.iter();
                    let found = values.find(|(value, _)| *value == name);
                    let (_, value) = found.ok_or_else(|| {
                        let missing = format!("a statement of a claim has no value `:{name}`");
                        diesel::result::Error::QueryBuilderError(missing.into())
                    })?;
                    value.put(out.reborrow())?;
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
            Self::Sql(sql) => sql.walk_ast(out),
            Self::Changes(changes) => put_each(std::slice::from_ref(changes), ", ", "", out),
        }
    }
}

fn put_each<'b>(
    fragments: &'b [Fragment<'_>],
    before: &str,
    after: &str,
    mut out: AstPass<'_, 'b, Pg>,
) -> QueryResult<()> {
    for fragment in fragments {
        if !fragment.is_noop(&Pg)? {
            out.push_sql(before);
            fragment.walk_ast(out.reborrow())?;
            out.push_sql(after);
        }
    }
    Ok(())
}

impl<Columns, T, const N: u8> Query for Statement<'_, Columns, T, N> {
    type SqlType = Columns;
}

impl<Columns: 'static, T: 'static, const N: u8> QueryId for Statement<'_, Columns, T, N> {
    type QueryId = Statement<'static, Columns, T, N>;
    const HAS_STATIC_QUERY_ID: bool = N > 0;
}
