//! A first word that makes a key differ from another.

use super::Side;
use crate::pattern::{Part, Pattern};

pub(super) fn first(side: &Side<'_>) -> Option<String> {
    let Some(Part::Text(text)) = side.lock.pattern()?.parts.first() else {
        return None;
    };
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let word = text[..end].trim_end_matches(['-', '_']);
    (!word.is_empty()).then(|| word.to_owned())
}

/// Keys that the side could have instead, the best first.
pub(super) fn keys(side: &Side<'_>) -> Vec<String> {
    let Some(pattern) = side.lock.pattern() else {
        return Vec::new();
    };
    let (first, written) = (first(side), side.text());
    let own = side.word.map(word_of);
    let mut keys = Vec::new();
    if let Some(own) = own.filter(|own| first.as_ref() != Some(own)) {
        keys.push(format!("{own}:{written}"));
    }
    let values = values(pattern);
    if let Some(first) = first
        && let Some(rest) = written.strip_prefix(&first)
    {
        if !values.is_empty() {
            keys.push(format!("{first}-{values}{rest}"));
        }
        keys.extend((2..9).map(|nth| format!("{first}-{nth}{rest}")));
    } else if !values.is_empty() {
        keys.push(format!("{values}:{written}"));
    }
    // Two words and three, for a program in which another key has as many parts and no word either.
    let own = side.word.map_or_else(|| "lock".to_owned(), word_of);
    keys.push(format!("{own}:key:{written}"));
    keys.push(format!("{own}:key:of:{written}"));
    keys.extend((2..9).map(|nth| format!("{own}-{nth}:{written}")));
    keys.iter().map(|key| side.key_of(key)).collect()
}

/// Names that both locks could have, the best first.
pub(super) fn names(side: &Side<'_>) -> Vec<String> {
    let values = side.lock.pattern().map(values).unwrap_or_default();
    let names = [first(side), Some(values), side.word.map(word_of)];
    let names: Vec<String> = names
        .into_iter()
        .flatten()
        .filter(|name| !name.is_empty())
        .collect();
    let more = names.first().cloned().unwrap_or_else(|| "lock".to_owned());
    let more = (2..9).map(move |nth| format!("{more}-{nth}"));
    names.into_iter().chain(more).collect()
}

/// A function's name, or a type's without `Lock` in lower case: `AccountTransferLock` gives
/// `account-transfer`.
fn word_of(name: &str) -> String {
    let name = name.trim_start_matches("r#");
    let bare = name.strip_suffix("Lock").filter(|bare| !bare.is_empty());
    let mut word = String::new();
    for c in bare.unwrap_or(name).chars() {
        if c.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(c.to_lowercase());
    }
    word
}

fn values(pattern: &Pattern) -> String {
    let last = |path: &[String]| {
        path.last()
            .map(|name| name.trim_start_matches("r#").to_owned())
    };
    let names = pattern
        .placeholders()
        .filter_map(|placeholder| last(&placeholder.path));
    names.collect::<Vec<_>>().join("-")
}
