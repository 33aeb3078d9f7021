//! The texts of rendered keys, kept only while the program shows them in query comments.

use super::Key;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// A request follows soon after its keys are rendered. Texts beyond this number belong to keys that
/// were never locked.
const CAPACITY: usize = 64;

thread_local! {
    static RENDERED: RefCell<Vec<(Key, String)>> = const { RefCell::new(Vec::new()) };
}

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub(crate) fn keep(is_kept: bool) {
    IS_KEPT.store(is_kept, Ordering::Relaxed);
}

pub(crate) fn is_kept() -> bool {
    IS_KEPT.load(Ordering::Relaxed)
}

/// Remembers a text for the next request for its key on this thread.
pub(crate) fn remember(key: Key, text: String) {
    // The thread-local is gone only while the thread ends.
    let _ended = RENDERED.try_with(|rendered| {
        let mut rendered = rendered.borrow_mut();
        if rendered.len() == CAPACITY {
            rendered.clear();
        }
        rendered.push((key, text));
    });
}

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub(crate) fn take(keys: &[Key]) -> Option<String> {
    let rendered = RENDERED.try_with(|rendered| std::mem::take(&mut *rendered.borrow_mut()));
    let rendered = rendered.unwrap_or_default();
    let text = |key| rendered.iter().rev().find(|(known, _)| known == key);
    let texts: Vec<&str> = keys
        .iter()
        .filter_map(text)
        .map(|(_, text)| text.as_str())
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}
