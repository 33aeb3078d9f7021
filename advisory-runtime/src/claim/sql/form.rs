//! The statements of claims: the text of each, made once in a process, because making it takes
//! longer than sending it.

use super::fragments::{Claimable, Fragments, PARKED, RENEWED};
use super::row_type::RowType;
use super::{Wanted, literal, state};
use crate::claim::table::Claim;
use crate::rows::{Change, End};
use crate::sql::qualify::{Part, parts};
use crate::sql::quoted;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The kind of a statement, and everything else on which its text depends, except the type of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::claim) enum Form {
    /// Claims the first row.
    First,
    /// Claims the first rows, and skips locked ones.
    Next {
        /// The most rows that it can claim.
        most: u32,
        skips_expired: bool,
        has_position: bool,
    },
    /// Claims the row of a key.
    ByKey,
    /// Ends the rows of these keys, and others among the first ones, that have no attempt left.
    Spent {
        limit: u32,
        way: SpentWay,
        has_position: bool,
    },
    /// Renews a claim, and returns how long it lasts.
    Renew,
    /// Renews claims without waiting for locked rows.
    RenewMany,
    /// Looks up the outcome of the transactions that ended these claims.
    Settled,
    /// Ends a claim without a message, unless its row is locked or it is about to expire.
    EndAtOnce(End),
    /// Ends a claim without a message in a transaction of the caller. It waits for a locked row.
    EndInside(End),
    End {
        /// A bit for each kind of end.
        kinds: u8,
        locked: Locked,
        has_changes: bool,
    },
    /// Locks the values of the first rows that can be claimed, at most `width`. Reads the first
    /// `reach` rows, or begins with any value.
    Reserve {
        width: u32,
        reach: u32,
        skips_expired: bool,
    },
    /// Claims the first rows of the locked values, as many as their limits allow.
    NextOfReserved {
        limit: u32,
        skips_expired: bool,
    },
    /// Locks the value of the row with a key, and waits for the lock.
    ReserveKey,
    /// Claims the row with a key, if its value is locked and below its limit.
    ReservedKey,
    /// Reads the position of the row with a key.
    Position,
    Counts,
    /// Looks for triggers that can change or replace what an end writes.
    Triggers,
}

/// The way in which a row that has no attempt left ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::claim) enum SpentWay {
    Fails,
    /// For a column that refuses the text.
    FailsWithoutText,
    /// For a row that refuses the end. It is claimed, so that it is not the first again at once.
    Parks,
}

/// The way in which a statement that ends claims treats locked rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::claim) enum Locked {
    Wait,
    /// It waits, in a transaction of the caller, for one claim.
    WaitInside,
    Skip,
    /// The statement fails after a short wait, and changes nothing.
    Fail,
}

impl Form {
    /// The form for so many of the first rows. A text is for a power of two of them.
    pub(in crate::claim) fn next(limit: u32, wanted: Wanted<'_>) -> Self {
        const FEW: u32 = 1_024;
        let most = limit.max(FEW).checked_next_power_of_two();
        let most = most.unwrap_or(u32::MAX);
        Self::Next {
            most,
            skips_expired: wanted.skips_expired,
            has_position: wanted.position.is_some(),
        }
    }

    /// Returns `true` if the text is kept. Texts for large numbers are not, because a process may
    /// use many numbers.
    const fn is_kept(self) -> bool {
        match self {
            Self::Reserve { width: number, .. } | Self::NextOfReserved { limit: number, .. } => {
                number <= 1_024
            }
            _ => true,
        }
    }

    #[allow(clippy::too_many_lines, reason = "a list of the statements")]
    fn text(self, row: &RowType) -> String {
        let mut fragments = Fragments::of(row);
        let file = match self {
            Self::First => {
                fragments.select(Claimable::Due, "{key}", 1);
                return fragments.claim_one(include_str!("first.sql"));
            }
            Self::Next {
                most,
                skips_expired,
                has_position,
            } => {
                fragments.begin_at_position(has_position);
                fragments.select(Claimable::first(skips_expired), "{columns}", most);
                fragments.add("first", include_str!("first.sql"));
                return fragments.claim_many(include_str!("first_of_many.sql"));
            }
            Self::ByKey => {
                fragments.select(Claimable::ByKey, "{key}", 1);
                return fragments.claim_one(include_str!("key.sql"));
            }
            Self::Spent {
                limit,
                way,
                has_position,
            } => {
                fragments.begin_at_position(has_position);
                fragments.select(Claimable::Due, "{columns}", limit);
                let is_free = fragments.is_claimable(Claimable::ByKey);
                fragments.add("is_free", is_free);
                let set = match way {
                    SpentWay::Fails => fragments.spent(true) + ":failed",
                    SpentWay::FailsWithoutText => fragments.spent(false) + ":failed",
                    SpentWay::Parks => PARKED.to_owned(),
                };
                fragments.add("set", set);
                include_str!("spent.sql")
            }
            Self::Renew => {
                fragments.add("set", RENEWED);
                fragments.add("answer", "{lasts}");
                include_str!("change.sql")
            }
            Self::RenewMany => {
                fragments.add("set", RENEWED);
                include_str!("renew_all.sql")
            }
            Self::Settled => include_str!("settled.sql"),
            Self::Triggers => include_str!("triggers.sql"),
            Self::EndAtOnce(end) => {
                fragments.add("set", fragments.ended(end));
                match end.change() {
                    Change::Delete => include_str!("delete_at_once.sql"),
                    Change::Set | Change::SetMessage { .. } => include_str!("end_at_once.sql"),
                }
            }
            Self::EndInside(end) => {
                fragments.add("set", fragments.ended(end));
                fragments.add("answer", "{transaction}");
                include_str!("change.sql")
            }
            Self::End {
                kinds,
                locked,
                has_changes,
            } => {
                fragments.add_ends(kinds, locked, has_changes);
                match locked {
                    Locked::Fail => include_str!("end_all_at_once.sql"),
                    _ => include_str!("end_all.sql"),
                }
            }
            Self::Reserve {
                width,
                reach,
                skips_expired,
            } => {
                fragments.add_limit(Claimable::first(skips_expired));
                fragments.add_reserve(width, reach);
                include_str!("reserve.sql")
            }
            Self::NextOfReserved {
                limit,
                skips_expired,
            } => {
                fragments.add_limit(Claimable::first(skips_expired));
                fragments.add("limit", limit.to_string());
                return fragments.claim_many(include_str!("first_of_reserved.sql"));
            }
            Self::ReserveKey => {
                fragments.add_limit(Claimable::ByKey);
                include_str!("reserve_key.sql")
            }
            Self::ReservedKey => {
                fragments.add_limit(Claimable::ByKey);
                return fragments.claim_many(include_str!("key_of_reserved.sql"));
            }
            Self::Position => {
                let value =
                    |name: &str| format!("{}, {}.{}", literal(name), row.table, quoted(name));
                fragments.add("order_values", row.order_names(value));
                include_str!("position.sql")
            }
            Self::Counts => {
                fragments.add("state", state(row));
                "SELECT state, count(*) FROM (SELECT {state} AS state FROM {table}) AS advisory_claim GROUP BY state"
            }
        };
        fragments.fill(file)
    }
}

/// SQL, and the values in it.
#[derive(Debug)]
pub(super) struct Text {
    /// The SQL before the first value.
    pub(super) first: Box<str>,
    /// The names of the values, each with the SQL after it.
    pub(super) values: Box<[(Box<str>, Box<str>)]>,
}

impl Text {
    fn new(sql: &str) -> Self {
        let (mut first, mut values) = (String::new(), Vec::<(Box<str>, Box<str>)>::new());
        for part in parts(sql) {
            match (part, values.last_mut()) {
                (Part::Value(name), _) => values.push((name.into(), Box::default())),
                (Part::Sql(sql), Some((_, after))) => *after = sql.into(),
                // People find the statements of claims by this word.
                (Part::Sql(sql), None) => first = format!("/*advisory_claim*/{sql}"),
            }
        }
        let (first, values) = (first.into(), values.into());
        Self { first, values }
    }
}

type Texts = HashMap<(TypeId, Form), Arc<Text>>;

static TEXTS: LazyLock<RwLock<Texts>> = LazyLock::new(RwLock::default);

/// Returns the text of this form for this type of row.
pub(super) fn text<T: Claim>(form: Form) -> Arc<Text> {
    text_for(TypeId::of::<T>(), RowType::of::<T>, form)
}

fn text_for(id: TypeId, row: fn() -> RowType, form: Form) -> Arc<Text> {
    let make = || Arc::new(Text::new(&form.text(&row())));
    if !form.is_kept() {
        return make();
    }
    let key = (id, form);
    let texts = TEXTS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = texts.get(&key) {
        return Arc::clone(text);
    }
    drop(texts);
    let text = make();
    let mut texts = TEXTS.write().unwrap_or_else(PoisonError::into_inner);
    texts.insert(key, Arc::clone(&text));
    text
}
