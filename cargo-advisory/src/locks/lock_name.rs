//! A lock's name in the lists, and its number.

use advisory_runtime::Key;
use advisory_runtime::monitor::{Certainty, Name};

use crate::screen::one_line;

/// A lock's name and its number, which is what other tools show.
pub(crate) fn label(key: Key, known: &[Name]) -> String {
    let names = names(known);
    match key {
        _ if names.is_empty() => key.to_string(),
        Key::BigInt(number) => format!("{names} ({number})"),
        Key::IntInt(..) => format!("{names} {key}"),
    }
}

/// The names of a lock, without its number; empty if it has none.
pub(super) fn names(names: &[Name]) -> String {
    let mut shown: Vec<String> = Vec::new();
    for name in names {
        let key = one_line(&name.key);
        let text = match &name.name {
            // A fixed key is a number, which is shown behind it anyway.
            Some(name) if key.parse::<i64>().is_ok() || key.starts_with('(') => one_line(name),
            Some(name) => format!("{}: {key}", one_line(name)),
            None if key.parse::<i64>().is_ok() || key.starts_with('(') => continue,
            None => key,
        };
        shown.push(text);
    }
    let shown = shown.join(" or ");
    let is_only_possible = match names {
        [name] => name.certainty == Certainty::Possible,
        // A tool that takes a number that other programs may also use.
        [name, ..] => {
            name.certainty == Certainty::Possible && name.name.is_some() && name.sites.is_empty()
        }
        [] => false,
    };
    if is_only_possible {
        return format!("perhaps {shown}");
    }
    shown
}
