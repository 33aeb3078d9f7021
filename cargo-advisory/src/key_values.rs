//! The values in a key, as a site writes them, and the detection of values that have changed
//! places.
//!
//! Two patterns of one form give one number for equal values in one order. Only the expressions of
//! values are known. An expression that only one release has can be the same value, but one that
//! both have must be at its place.

use std::collections::BTreeMap;

use advisory_pattern::{LockedKey, Pattern};

use crate::text::joined;

/// The values of a pattern's placeholders. Those in `with` are replaced by their expressions.
pub(crate) fn of_pattern(pattern: &Pattern, with: &[(String, String)]) -> Vec<String> {
    let values = pattern.placeholders().map(|placeholder| {
        let (root, fields) = placeholder.path.split_first()?;
        let computed = with.iter().find(|(name, _)| name == root);
        let root = without_space(computed.map_or(root, |(_, expression)| expression));
        Some(joined([&root].into_iter().chain(fields), "."))
    });
    values.map(Option::unwrap_or_default).collect()
}

/// The values of a declared lock's placeholders if the lock is written
/// `SlotLock { room, night: day }`; `None` if a function or a macro returns it.
pub(crate) fn of_declared(pattern: &Pattern, expression: &str) -> Option<Vec<String>> {
    let (name, arguments) = call(expression)?;
    let is_type = name.rsplit("::").next()?.starts_with(char::is_uppercase);
    let values: BTreeMap<String, String> = arguments.into_iter().collect();
    let values = pattern.placeholders().map(|placeholder| {
        let (root, fields) = placeholder.path.split_first()?;
        Some(joined([values.get(root)?].into_iter().chain(fields), "."))
    });
    values.collect::<Option<Vec<String>>>().filter(|_| is_type)
}

/// The halves of a pair that are known only at run time.
pub(crate) fn of_pair(key: &LockedKey, written: &str) -> Option<Vec<String>> {
    let LockedKey::IntInt(first, second) = key else {
        return None;
    };
    let (_, halves) = call(written)?;
    let known = [first, second].into_iter().zip(halves);
    let unknown = known.filter(|(number, _)| number.is_none());
    Some(unknown.map(|(_, (_, half))| half).collect())
}

/// Returns `true` if two expressions that call one function, or construct one type, pass equal
/// values at other places.
pub(crate) fn are_rearranged(old: &str, new: &str) -> bool {
    let (Some((old_name, old)), Some((new_name, new))) = (call(old), call(new)) else {
        return false;
    };
    let values = |arguments: Vec<(String, String)>| -> Vec<String> {
        arguments.into_iter().map(|(_, value)| value).collect()
    };
    let is_one_call = old_name == new_name && old.len() == new.len();
    is_one_call && have_moved(&pairs(&values(old), &values(new)))
}

/// The values at equal places.
pub(crate) fn pairs(old: &[String], new: &[String]) -> Vec<(String, String)> {
    old.iter().cloned().zip(new.iter().cloned()).collect()
}

/// Returns `true` if a value that both releases name has another place. Each pair has the values of
/// the old and the new release at one place.
pub(crate) fn have_moved(pairs: &[(String, String)]) -> bool {
    let last = |value: &String| value.rsplit('.').next().unwrap_or_default().to_owned();
    let fields = pairs.iter().map(|(old, new)| (last(old), last(new)));
    let fields: Vec<(String, String)> = fields.collect();
    // `from.id` and `to.id` are distinguished by more than the field.
    let is_function = |one: &[(String, String)], by: fn(&(String, String)) -> &String| {
        let mut places = one.iter().enumerate();
        places.all(|(at, pair)| {
            let mut before = pairs[..at].iter().zip(&one[..at]);
            before.all(|(whole, part)| by(part) != by(pair) || by(whole) == by(&pairs[at]))
        })
    };
    let fields_are_distinct =
        is_function(&fields, |pair| &pair.0) && is_function(&fields, |pair| &pair.1);
    is_rearranged(pairs) || fields_are_distinct && is_rearranged(&fields)
}

/// Returns `false` if the new values can be the old ones under other names: each has one name, and
/// a name in both releases means one value.
fn is_rearranged(pairs: &[(String, String)]) -> bool {
    pairs.iter().any(|(old, new)| {
        pairs.iter().any(|(other_old, other_new)| {
            (old == other_old) != (new == other_new)
                || old != new && (new == other_old || old == other_new)
        })
    })
}

/// The name of the function or type, and its arguments with their places or field names. Without
/// white space.
fn call(expression: &str) -> Option<(String, Vec<(String, String)>)> {
    let text = without_space(expression);
    let start = text.find(['(', '{'])?;
    let (name, rest) = text.split_at(start);
    let is_struct = rest.starts_with('{');
    let inner = rest[1..].strip_suffix(if is_struct { '}' } else { ')' })?;
    let mut arguments = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '(' | '[' | '{' => depth += 1,
            // The first parenthesis closes before the end of the expression: `a(x).b(y)`.
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                let argument = &inner[from..at];
                from = at + 1;
                if argument.is_empty() {
                    continue;
                }
                let field = argument.split_once(':');
                let field = field.filter(|(_, value)| is_struct && !value.starts_with(':'));
                let (name, value) = field.unwrap_or((argument, argument));
                let place = arguments.len().to_string();
                let name = if is_struct { name.to_owned() } else { place };
                arguments.push((name, value.to_owned()));
            }
            _ => {}
        }
    }
    if is_struct {
        arguments.sort();
    }
    Some((name.to_owned(), arguments))
}

/// Compilers differ in the spaces between tokens.
pub(crate) fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}
