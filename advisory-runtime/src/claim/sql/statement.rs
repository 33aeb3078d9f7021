//! A statement about one claim, or about the first rows: its text, and the values in it.

use super::end_columns::{How, ONE, Pause, end_of, millis, transaction};
use super::fragments::{Claimable, Fragments, RENEWED};
use super::text_cache::{Form, Text, cached};
use super::{Fragment, Wanted, text};
use crate::claim::column_type::HolderType as _;
use crate::claim::table::Claim;
use crate::random::random;
use crate::rows::End;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Nullable, Text as SqlText, Untyped};
use diesel::{Expression, QueryResult};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

/// A statement. `Id` is a [`Fixed`] for a text that only the type of row changes: Diesel then finds
/// the prepared statement without the text.
pub(in crate::claim) struct Statement<'a, T: Claim, K, Id = ()> {
    text: Arc<Text>,
    key: K,
    /// The `locked_by` of a claim, the common beginning of several, or an array of values in SQL.
    holder: Cow<'a, str>,
    message: Option<&'a str>,
    /// The pause before another attempt, in milliseconds.
    pause: i64,
    /// The most rows to claim, or the number after which a reservation begins.
    pub(super) limit: i64,
    wanted: Wanted<'a>,
    selection: T::Selection,
    row: PhantomData<fn() -> (T, Id)>,
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
            let which = if is_fresh {
                Claimable::Fresh
            } else {
                Claimable::Due
            };
            let mut fragments = Fragments::of::<T>();
            fragments.select::<T>(which, "{columns}", most);
            fragments.add("first", include_str!("first.sql"));
            fragments.add("rows", include_str!("first_of_many.sql"));
            fragments.claim_many::<T>()
        });
        let mut statement = Self::new(text, (), of_claims::<T>(worker)).with(wanted);
        statement.limit = limit.into();
        statement
    }
}

impl<'a, T: Claim, N: Id> Statement<'a, T, (), N> {
    /// Claims the first row.
    pub(in crate::claim) fn first(worker: &'a str, wanted: Wanted<'a>) -> Self {
        let text = cached::<T>(Form::First, || {
            let mut fragments = Fragments::of::<T>();
            fragments.select::<T>(Claimable::Due, "{key}", 1);
            fragments.add("rows", include_str!("first.sql"));
            fragments.claim_one::<T>()
        });
        Self::new(text, (), of_claim::<T>(worker)).with(wanted)
    }
}

impl<'a, T: Claim, K, N: Id> Statement<'a, T, K, N> {
    pub(super) fn new(text: Arc<Text>, key: K, holder: Cow<'a, str>) -> Self {
        Self {
            text,
            key,
            holder,
            message: None,
            pause: 0,
            limit: 1,
            wanted: Wanted::default(),
            selection: T::selection(),
            row: PhantomData,
        }
    }

    pub(super) fn with(mut self, wanted: Wanted<'a>) -> Self {
        self.wanted = wanted;
        self
    }

    /// Claims the row of a key.
    pub(in crate::claim) fn by_key(worker: &'a str, key: K, wanted: Wanted<'a>) -> Self {
        let text = cached::<T>(Form::ByKey, || {
            let mut fragments = Fragments::of::<T>();
            fragments.select::<T>(Claimable::ByKey, "{key}", 1);
            fragments.add("rows", include_str!("key.sql"));
            fragments.claim_one::<T>()
        });
        Self::new(text, key, of_claim::<T>(worker)).with(wanted)
    }

    /// Renews a claim, and returns how long it lasts.
    pub(in crate::claim) fn renew(locked_by: &'a str, key: K) -> Self {
        let text = cached::<T>(Form::Renew, || {
            let mut fragments = Fragments::of::<T>();
            fragments.add("held", include_str!("held.sql"));
            fragments.add("set", RENEWED);
            fragments.add("returning", "RETURNING {lasts}");
            fragments.fill(include_str!("change.sql"))
        });
        Self::new(text, key, locked_by.into())
    }

    /// Ends a claim. Inside an open transaction it returns the transaction's id, if the claim was
    /// held, and limits its idle time.
    pub(in crate::claim) fn end(locked_by: &'a str, key: K, ending: &Ending<'a>) -> Self {
        let how = ending.how;
        let (end, pause) = form_of::<T>(ending.end);
        let text = cached::<T>(Form::End { end, pause, how }, || {
            let mut fragments = Fragments::of::<T>();
            fragments.add("set", Fragments::ended::<T>(end, pause, ONE));
            fragments.add("held", include_str!("held.sql"));
            let returning = match how {
                How::Inside => format!("RETURNING {}", transaction::<T>()),
                _ => String::new(),
            };
            fragments.add("returning", returning);
            fragments.fill(match (end, how) {
                (End::Delete, How::AtOnce) => include_str!("delete_at_once.sql"),
                (End::Delete, _) => include_str!("delete.sql"),
                (_, How::AtOnce) => include_str!("end_at_once.sql"),
                _ => include_str!("change.sql"),
            })
        });
        let mut statement = Self::new(text, key, locked_by.into());
        statement.message = ending.message;
        if let End::Retry { after: Some(after) } = ending.end {
            statement.pause = millis(after);
        }
        statement.wanted.changes = ending.changes;
        statement
    }
}

/// The end of a claim, and the way in which it is sent.
#[derive(Clone, Copy)]
pub(in crate::claim) struct Ending<'a> {
    pub(in crate::claim) end: End,
    /// `None` leaves the row's message as it is.
    pub(in crate::claim) message: Option<&'a str>,
    pub(in crate::claim) changes: &'a [Fragment<'a>],
    pub(in crate::claim) how: How,
}

/// Returns the parts of an end on which its text depends.
pub(super) fn form_of<T: Claim>(end: End) -> (End, Pause) {
    match end_of::<T>(end) {
        End::Retry { after } => {
            let pause = after.map_or(Pause::Backoff, |_| Pause::Bound);
            (End::Retry { after: None }, pause)
        }
        end => (end, Pause::Backoff),
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

impl<T: Claim, K: QueryFragment<Pg>, N> QueryFragment<Pg> for Statement<'_, T, K, N> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.text.first());
        for (name, sql) in self.text.values() {
            match name {
                "key" => self.key.walk_ast(out.reborrow())?,
                "holder" | "passed_over" => out.push_bind_param::<SqlText, _>(&self.holder)?,
                "message" => out.push_bind_param::<Nullable<SqlText>, _>(&self.message)?,
                "pause" => out.push_bind_param::<BigInt, _>(&self.pause)?,
                "limit" | "start" => out.push_bind_param::<BigInt, _>(&self.limit)?,
                "selection" => self.selection.walk_ast(out.reborrow())?,
                name => self.wanted.walk_ast(name, out.reborrow())?,
            }
            out.push_sql(sql);
        }
        Ok(())
    }
}

impl Wanted<'_> {
    /// Writes the caller's SQL with this name.
    pub(super) fn walk_ast<'b>(
        &'b self,
        name: &str,
        mut out: AstPass<'_, 'b, Pg>,
    ) -> QueryResult<()> {
        let (fragments, before, behind) = match name {
            "conditions" => (self.conditions, " AND (", ")"),
            _ => (self.changes, ", ", ""),
        };
        if name == "conditions"
            && let Some(from) = self.from
        {
            out.push_sql(" AND ");
            from.walk_ast(out.reborrow())?;
        }
        for fragment in fragments {
            if !fragment.is_noop(&Pg)? {
                out.push_sql(before);
                fragment.walk_ast(out.reborrow())?;
                out.push_sql(behind);
            }
        }
        Ok(())
    }
}

impl<T: Claim, K, N> Query for Statement<'_, T, K, N> {
    type SqlType = Untyped;
}

/// A statement is prepared under its text, like Diesel's own updates, or under its number.
impl<T: Claim, K, N: Id> QueryId for Statement<'_, T, K, N> {
    type QueryId = (PhantomData<T>, N);
    const HAS_STATIC_QUERY_ID: bool = N::IS_FIXED;
}
