//! A statement about one claim, or about the first rows: its text, and the values in it.

use super::fragments::{Claimable, Fragments, RENEWED};
use super::text_cache::{Form, Text, cached};
use super::{Fragment, Wanted, text};
use crate::claim::column_type::HolderType as _;
use crate::claim::table::Claim;
use crate::random::random;
use crate::rows::End;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Interval, Nullable, Text as SqlText, Untyped};
use diesel::{Expression, QueryResult};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

/// A statement, and the SQL types of its columns. `Id` is a [`Fixed`] for a text that only the type
/// of row changes: Diesel then finds the prepared statement without the text.
pub(in crate::claim) struct Statement<'a, T: Claim, K, Columns = Untyped, Id = ()> {
    text: Arc<Text>,
    /// A key, or the arrays of several keys.
    key: K,
    /// The other values, by their names in the file.
    values: Vec<(&'static str, Value<'a>)>,
    pub(super) wanted: Wanted<'a>,
    selection: T::Selection,
    row: PhantomData<fn() -> (T, Columns, Id)>,
}

/// A value of a statement, or an array with one for each row.
pub(super) enum Value<'a> {
    Text(Cow<'a, str>),
    Texts(Vec<Option<&'a str>>),
    Number(i64),
    Numbers(Vec<Option<i64>>),
    /// Columns that the row's type sets.
    Changes(Fragment<'static>),
}

/// The most rows that one text claims; more rows need texts of their own.
const MANY: u32 = 1_024;

/// A text by its number.
#[derive(Debug)]
pub(in crate::claim) struct Fixed<const N: u8>;

/// The part of a statement's `QueryId` that differs between the texts for a type of row.
pub(in crate::claim) trait Id: 'static {
    const IS_FIXED: bool;
}

impl Id for () {
    const IS_FIXED: bool = false;
}

impl<const N: u8> Id for Fixed<N> {
    const IS_FIXED: bool = true;
}

impl<'a, T: Claim> Statement<'a, T, ()> {
    /// Claims the first rows, and skips locked ones.
    pub(in crate::claim) fn next(worker: &'a str, limit: u32, wanted: Wanted<'a>) -> Self {
        let is_fresh = wanted.is_fresh;
        let most = limit.max(MANY).checked_next_power_of_two();
        let most = most.unwrap_or(u32::MAX);
        let text = cached::<T>(Form::Next { most, is_fresh }, || {
            let mut fragments = Fragments::of::<T>();
            fragments.select::<T>(Claimable::first(is_fresh), "{columns}", most);
            fragments.add("first", include_str!("first.sql"));
            fragments.add("rows", include_str!("first_of_many.sql"));
            fragments.claim_many::<T>()
        });
        Self::new(text, ())
            .with("holder", Value::Text(of_claims::<T>(worker)))
            .with("limit", Value::Number(limit.into()))
            .wanted(wanted)
    }
}

impl<'a, T: Claim, N: Id> Statement<'a, T, (), Untyped, N> {
    /// Claims the first row.
    pub(in crate::claim) fn first(worker: &'a str, wanted: Wanted<'a>) -> Self {
        let text = cached::<T>(Form::First, || {
            let mut fragments = Fragments::of::<T>();
            fragments.select::<T>(Claimable::Due, "{key}", 1);
            fragments.add("rows", include_str!("first.sql"));
            fragments.claim_one::<T>()
        });
        let holder = Value::Text(of_claim::<T>(worker));
        Self::new(text, ()).with("holder", holder).wanted(wanted)
    }
}

impl<'a, T: Claim, K> Statement<'a, T, K> {
    /// Claims the row of a key.
    pub(in crate::claim) fn by_key(worker: &'a str, key: K, wanted: Wanted<'a>) -> Self {
        let text = cached::<T>(Form::ByKey, || {
            let mut fragments = Fragments::of::<T>();
            fragments.select::<T>(Claimable::ByKey, "{key}", 1);
            fragments.add("rows", include_str!("key.sql"));
            fragments.claim_one::<T>()
        });
        let holder = Value::Text(of_claim::<T>(worker));
        Self::new(text, key).with("holder", holder).wanted(wanted)
    }
}

impl<'a, T: Claim, K> Statement<'a, T, K, Nullable<Interval>> {
    /// Renews a claim, and returns how long it lasts.
    pub(in crate::claim) fn renew(locked_by: &'a str, key: K) -> Self {
        let text = cached::<T>(Form::Renew, || {
            let mut fragments = Fragments::of::<T>();
            fragments.add("set", RENEWED);
            fragments.fill(include_str!("renew.sql"))
        });
        Self::new(text, key).with("holder", Value::Text(locked_by.into()))
    }
}

impl<'a, T: Claim, K, N: Id> Statement<'a, T, K, Untyped, N> {
    /// Ends a claim without a message, unless its row is locked or it is about to expire.
    pub(in crate::claim) fn end_at_once(
        locked_by: &'a str,
        key: K,
        end: End,
        changes: &'a [Fragment<'a>],
    ) -> Self {
        let text = cached::<T>(Form::EndAtOnce(end), || {
            let mut fragments = Fragments::of::<T>();
            fragments.add("set", Fragments::ended::<T>(end));
            fragments.fill(match end {
                End::Delete => include_str!("delete_at_once.sql"),
                _ => include_str!("end_at_once.sql"),
            })
        });
        let statement = Self::new(text, key).with("holder", Value::Text(locked_by.into()));
        statement.wanted(Wanted {
            changes,
            ..Wanted::default()
        })
    }
}

impl<'a, T: Claim, K, Columns, N> Statement<'a, T, K, Columns, N> {
    pub(super) fn new(text: Arc<Text>, key: K) -> Self {
        Self {
            text,
            key,
            values: Vec::new(),
            wanted: Wanted::default(),
            selection: T::selection(),
            row: PhantomData,
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: Value<'a>) -> Self {
        self.values.push((name, value));
        self
    }

    pub(super) fn wanted(self, wanted: Wanted<'a>) -> Self {
        Self { wanted, ..self }
    }
}

/// Makes the `locked_by` of one new claim. The server would take three times as long.
pub(super) fn of_claim<T: Claim>(worker: &str) -> Cow<'_, str> {
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
    holder.into()
}

/// Makes the common beginning of the `locked_by` of several new claims: all but the last part of
/// the UUID.
pub(super) fn of_claims<T: Claim>(worker: &str) -> Cow<'_, str> {
    let mut holder = of_claim::<T>(worker).into_owned();
    holder.truncate(holder.len() - 12);
    holder.into()
}

impl Fragments {
    /// Adds the fragments of the files that lock rows.
    pub(super) fn select<T: Claim>(&mut self, which: Claimable, columns: &str, limit: u32) {
        self.add("selected", columns);
        self.add("is_claimable", Self::is_claimable::<T>(which));
        self.add("limit", limit.to_string());
    }

    /// Returns the text of a claim on the row that `{rows}` locks.
    fn claim_one<T: Claim>(self) -> String {
        self.claim::<T>(include_str!("claim_one.sql"), "{holder}")
    }

    /// Returns the text of a claim on the rows that `{rows}` locks.
    pub(super) fn claim_many<T: Claim>(self) -> String {
        self.claim::<T>(include_str!("claim.sql"), "{nth_holder}")
    }

    fn claim<T: Claim>(mut self, file: &str, holder: &str) -> String {
        self.add("claimed", Self::claimed::<T>(holder));
        self.add("returned", "{holder_text}, {lasts}");
        self.fill(file)
    }
}

impl<T: Claim, K: QueryFragment<Pg>, Columns, N> QueryFragment<Pg>
    for Statement<'_, T, K, Columns, N>
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.text.first());
        for (name, sql) in self.text.values() {
            match name {
                "key" | "keys" => self.key.walk_ast(out.reborrow())?,
                "selection" => self.selection.walk_ast(out.reborrow())?,
                "conditions" => self.wanted.put_conditions(out.reborrow())?,
                "changes" => put_changes(self.wanted.changes, out.reborrow())?,
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
            Self::Changes(changes) => put_changes(std::slice::from_ref(changes), out),
        }
    }
}

fn put_changes<'b>(changes: &'b [Fragment<'_>], mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
    for changes in changes {
        if !changes.is_noop(&Pg)? {
            out.push_sql(", ");
            changes.walk_ast(out.reborrow())?;
        }
    }
    Ok(())
}

impl Wanted<'_> {
    fn put_conditions<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        if let Some(from) = self.from {
            out.push_sql(" AND ");
            from.walk_ast(out.reborrow())?;
        }
        for condition in self.conditions {
            if !condition.is_noop(&Pg)? {
                out.push_sql(" AND (");
                condition.walk_ast(out.reborrow())?;
                out.push_sql(")");
            }
        }
        Ok(())
    }
}

impl<T: Claim, K, Columns, N> Query for Statement<'_, T, K, Columns, N> {
    type SqlType = Columns;
}

/// A statement is prepared under its text, like Diesel's own updates, or under its number.
impl<T: Claim, K, Columns, N: Id> QueryId for Statement<'_, T, K, Columns, N> {
    type QueryId = (PhantomData<T>, N);
    const HAS_STATIC_QUERY_ID: bool = N::IS_FIXED;
}
