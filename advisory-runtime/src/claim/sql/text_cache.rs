//! The texts of statements, which are made once in a process: to make one takes longer than to send it.

use super::end::EndForm;
use crate::claim::table::Claim;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// What a statement does, and all that its text depends on besides the type of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// With the number of rows.
    Next(u32),
    ByKey,
    Renew,
    Holder,
    Ended {
        by: EndForm,
        is_inside: bool,
    },
    /// With the number of values.
    Reserve(u32),
    /// With the number of rows.
    NextOfReserved(u32),
    ReserveKey,
    ReservedKey,
}

impl Form {
    /// Whether the text is kept. A process that gives many numbers would keep a text for each.
    const fn is_kept(self) -> bool {
        match self {
            Self::Next(number) | Self::Reserve(number) | Self::NextOfReserved(number) => {
                number <= 1_024
            }
            _ => true,
        }
    }
}

type Texts = HashMap<(TypeId, Form), Arc<str>>;

static TEXTS: LazyLock<RwLock<Texts>> = LazyLock::new(RwLock::default);

/// The text of this form for this type of row, made by `make` the first time.
pub(super) fn cached<T: Claim>(form: Form, make: impl FnOnce() -> String) -> Arc<str> {
    if !form.is_kept() {
        return make().into();
    }
    let key = (TypeId::of::<T>(), form);
    let texts = TEXTS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = texts.get(&key) {
        return Arc::clone(text);
    }
    drop(texts);
    let text: Arc<str> = make().into();
    let mut texts = TEXTS.write().unwrap_or_else(PoisonError::into_inner);
    texts.insert(key, Arc::clone(&text));
    text
}
