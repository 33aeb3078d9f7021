//! The texts of statements. Each is made once in a process, because making it takes longer than
//! sending it.

use super::ends::Locked;
use crate::claim::table::Claim;
use crate::rows::End;
use crate::sql::qualify::{Part, parts};
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The kind of a statement, and everything else on which its text depends, except the type of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    First,
    Next {
        /// The most rows that it can claim.
        most: u32,
        is_fresh: bool,
    },
    ByKey,
    Spent {
        limit: u32,
        way: SpentWay,
    },
    Renew,
    RenewMany,
    Settled,
    EndAtOnce(End),
    End {
        /// A bit for each kind of end.
        kinds: u8,
        locked: Locked,
        has_changes: bool,
    },
    Reserve {
        width: u32,
        reach: u32,
        is_fresh: bool,
    },
    NextOfReserved {
        limit: u32,
        is_fresh: bool,
    },
    ReserveKey,
    ReservedKey,
    Position,
    FromPosition,
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

impl Form {
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
}

/// SQL, and the values in it.
#[derive(Debug)]
pub(super) struct Text {
    first: Box<str>,
    /// The names of the values, each with the SQL after it.
    values: Box<[(Box<str>, Box<str>)]>,
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

    /// Returns the SQL before the first value.
    pub(super) const fn first(&self) -> &str {
        &self.first
    }

    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, sql)| (&**name, &**sql))
    }
}

type Texts = HashMap<(TypeId, Form), Arc<Text>>;

static TEXTS: LazyLock<RwLock<Texts>> = LazyLock::new(RwLock::default);

/// Returns the text of this form for this type of row. Calls `make` the first time.
pub(super) fn cached<T: Claim>(form: Form, make: impl FnOnce() -> String) -> Arc<Text> {
    let make = || Arc::new(Text::new(&make()));
    if !form.is_kept() {
        return make();
    }
    let key = (TypeId::of::<T>(), form);
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
