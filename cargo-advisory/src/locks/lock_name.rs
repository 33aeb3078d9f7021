//! A lock's name in the lists, and its number.

use advisory_runtime::Key;
use advisory_runtime::monitor::{Certainty, Name};

use crate::text::{joined, one_line};

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
    let shown = names.iter().filter_map(|name| {
        let key = one_line(&name.key);
        // A fixed key is a number, which is shown after it anyway.
        let is_number = key.parse::<i64>().is_ok() || key.starts_with('(');
        match &name.name {
            Some(name) if is_number => Some(one_line(name)),
            Some(name) => Some(format!("{}: {key}", one_line(name))),
            None => Some(key).filter(|_| !is_number),
        }
    });
    let shown = joined(shown, " or ");
    let is_possible = |name: &Name| name.certainty == Certainty::Possible;
    let is_only_possible = match names {
        [name] => is_possible(name),
        // A tool that takes a number that other programs may also use.
        [name, ..] => is_possible(name) && name.name.is_some() && name.sites.is_empty(),
        [] => false,
    };
    if is_only_possible {
        format!("perhaps {shown}")
    } else {
        shown
    }
}
