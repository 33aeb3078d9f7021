//! What others see of a lock while it is held or waited for: a name behind the application name of its session.
//!
//! PostgreSQL shows the number of a lock, and the application name of whoever has it to everybody. So that is where the key
//! pattern goes: `shop [booking:<tenant_id>:<day>]`.

#![cfg_attr(
    not(feature = "diesel"),
    allow(unreachable_pub, reason = "what locks show is said in `monitor`")
)]

use crate::Key;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a lock shows of itself in the application name of its session, for as long as it is held or waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Nothing: the application name stays as it is.
    Nothing,
    /// The key pattern, which is the same for all its keys.
    #[default]
    Pattern,
    /// The rendered key. It can be personal data, such as an address, and every role of the server can read it.
    Key,
}

static SHOWN: AtomicU8 = AtomicU8::new(1);

/// Rendered keys are few between their making and their request; what is left here was made for nothing.
const LONGEST_MEMORY: usize = 64;

thread_local! {
    static RENDERED: RefCell<Vec<(Key, String)>> = const { RefCell::new(Vec::new()) };
}

/// Says what the locks of this process show from now on; the key pattern unless it is said.
#[cfg(feature = "diesel")]
pub fn show(shown: Shown) {
    let number = match shown {
        Shown::Nothing => 0,
        Shown::Pattern => 1,
        Shown::Key => 2,
    };
    SHOWN.store(number, Ordering::Relaxed);
}

/// What they show now.
#[must_use]
pub fn shown() -> Shown {
    match SHOWN.load(Ordering::Relaxed) {
        0 => Shown::Nothing,
        1 => Shown::Pattern,
        _ => Shown::Key,
    }
}

/// Remembers what a key was rendered to, for the request that is made of it next.
pub(crate) fn remember(key: Key, rendered: String) {
    // Gone while the thread ends, when nothing is locked any more.
    let _ended = RENDERED.try_with(|memory| {
        let mut memory = memory.borrow_mut();
        if memory.len() == LONGEST_MEMORY {
            memory.clear();
        }
        memory.push((key, rendered));
    });
}

/// What a request for these keys shows.
#[cfg(feature = "diesel")]
pub(crate) fn text(pattern: &'static str, keys: &[Key]) -> Option<std::borrow::Cow<'static, str>> {
    let pattern: Option<std::borrow::Cow<'static, str>> =
        (!pattern.is_empty()).then_some(pattern.into());
    match shown() {
        Shown::Nothing => None,
        Shown::Pattern => pattern,
        Shown::Key => {
            let rendered = RENDERED.try_with(|memory| {
                let memory = std::mem::take(&mut *memory.borrow_mut());
                let found = |key| memory.iter().rev().find(|(known, _)| known == key);
                let texts = keys.iter().filter_map(found);
                let texts: Vec<&str> = texts.map(|(_, text)| text.as_str()).collect();
                texts.join(", ")
            });
            match rendered {
                Ok(rendered) if !rendered.is_empty() => Some(rendered.into()),
                _ => pattern,
            }
        }
    }
}
