//! The texts of statements, which are made once in a process: to make one takes longer than to send
//! it.

use super::end::{How, Pause};
use crate::claim::table::Claim;
use crate::rows::End;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// What a statement does, and all that its text depends on besides the type of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    First,
    Next {
        /// How many rows it can claim.
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
    End {
        end: End,
        pause: Pause,
        how: How,
    },
    EndMany {
        /// A bit for each kind of end.
        kinds: u8,
        waits: bool,
        /// Whether the row's type sets columns where a row fails.
        sets_failed: bool,
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

/// What becomes of a row that has no attempt left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::claim) enum SpentWay {
    Fails,
    /// A column refuses the text.
    FailsWithoutText,
    /// The row refuses the end: it is claimed, so that it does not come first again at once.
    Parks,
}

impl Form {
    /// Whether the text is kept. A process that gives many numbers would keep a text for each.
    const fn is_kept(self) -> bool {
        match self {
            Self::Reserve { width: number, .. } | Self::NextOfReserved { limit: number, .. } => {
                number <= 1_024
            }
            _ => true,
        }
    }
}

/// SQL, and the marks in it.
#[derive(Debug)]
pub(super) struct Text {
    first: Box<str>,
    rest: Box<[(char, Box<str>)]>,
}

impl Text {
    fn new(sql: &str) -> Self {
        let mut parts = sql.split('\0');
        let first = parts.next().unwrap_or_default().into();
        let rest = parts.filter_map(|part| {
            let mark = part.chars().next()?;
            Some((mark, part[mark.len_utf8()..].into()))
        });
        let rest = rest.collect();
        Self { first, rest }
    }

    pub(super) fn pieces(&self) -> Pieces<'_> {
        Pieces {
            first: &self.first,
            rest: self.rest.iter(),
        }
    }
}

/// The SQL in front of the first mark, and then each mark with the SQL after it.
pub(super) struct Pieces<'t> {
    first: &'t str,
    rest: std::slice::Iter<'t, (char, Box<str>)>,
}

impl<'t> Pieces<'t> {
    pub(super) const fn first(&self) -> &'t str {
        self.first
    }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = (char, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        self.rest.next().map(|(mark, sql)| (*mark, &**sql))
    }
}

type Texts = HashMap<(TypeId, Form), Arc<Text>>;

static TEXTS: LazyLock<RwLock<Texts>> = LazyLock::new(RwLock::default);

/// The text of this form for this type of row, made by `make` the first time.
pub(super) fn cached<T: Claim>(form: Form, make: impl FnOnce() -> String) -> Arc<Text> {
    // The word by which people find the statements of claims.
    let make = || Arc::new(Text::new(&format!("/*advisory_claim*/{}", make())));
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
