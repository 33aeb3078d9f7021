//! Arguments that take one of a few quoted words.
//!
//! Each word is listed with its meaning, so that no word is accepted and then read as another one.

use super::value::listed;
use crate::errors::Errors;
use crate::tokens::{first_span, is_punct};
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::LitStr;

pub(crate) const OF_LEASE: &str = "for a lease, write `#[advisory_lease(key = …, pool = …)]`";

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    #[default]
    Xact,
    Session,
}

impl Scope {
    pub(crate) const ALL: [Self; 2] = [Self::Xact, Self::Session];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xact => "xact",
            Self::Session => "session",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    pub(crate) const ALL: [Self; 3] = [
        Self::ReadCommitted,
        Self::RepeatableRead,
        Self::Serializable,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

pub(crate) fn choice<T: Copy, const N: usize>(
    value: &TokenStream,
    name: &Ident,
    meanings: [(&'static str, T); N],
    errors: &mut Errors,
) -> Option<T> {
    let is_path = |token: TokenTree| matches!(token, TokenTree::Ident(_)) || is_punct(&token, ':');
    // The last word of a path: `Scope::Session`.
    let unquoted = match value.clone().into_iter().last() {
        Some(TokenTree::Ident(word)) if value.clone().into_iter().all(is_path) => Some(word),
        _ => None,
    };
    let (given, span) = if let Some(word) = &unquoted {
        (word.to_string(), first_span(value))
    } else if let Ok(literal) = syn::parse2::<LitStr>(value.clone()) {
        (literal.value(), literal.span())
    } else {
        let expected = quoted(meanings.map(|(word, _)| word));
        let wanted = format_args!("`{name}` must be {expected}");
        return errors.refuse(first_span(value), wanted);
    };
    let Some((_, meaning)) = meanings.iter().find(|(word, _)| *word == given) else {
        let words = meanings.map(|(word, _)| word);
        // Another derivation gives other numbers, so only its own other spellings are suggested.
        let close = if name == "derivation" {
            let plain = |word: &str| word.to_lowercase().replace(['-', '_', ' '], "");
            words.into_iter().find(|word| *word == plain(&given))
        } else {
            let known = suggestion(&given).filter(|meant| words.contains(meant));
            known.or_else(|| advisory_pattern::closest(&given, words))
        };
        let other = if name == "derivation" {
            "; for another function, implement `LockKey`"
        } else {
            ""
        };
        let hint = match close {
            _ if name == "scope" && given.eq_ignore_ascii_case("lease") => OF_LEASE.to_owned(),
            Some(close) => format!("did you mean `\"{close}\"`?"),
            None => format!("expected {}{other}", quoted(words)),
        };
        return errors.refuse(
            span,
            format_args!("unknown value `{given}` for `{name}`: {hint}"),
        );
    };
    if unquoted.is_some() {
        return errors.refuse(span, format_args!("write `{name} = \"{given}\"`"));
    }
    Some(*meaning)
}

fn suggestion(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "transaction" | "tx" | "txn" | "transactional" => "xact",
        "connection" => "session",
        "read" | "reader" | "share" => "shared",
        "write" | "writer" | "unique" | "mutex" => "exclusive",
        "false" | "deny" | "forbid" | "never" | "error" => "refuse",
        "true" | "savepoint" => "allow",
        _ => return None,
    })
}

/// "`"exclusive"` or `"shared"`"
fn quoted<const N: usize>(words: [&str; N]) -> String {
    let quoted = words.map(|word| format!("\"{word}\""));
    listed(&quoted.each_ref().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use crate::written::messages;

    #[test]
    fn a_value_that_is_no_word_has_one_message() {
        let messages = messages(
            "#[advisory_lock(key = 7, mode = &shared)] async fn run(conn: &mut C) -> QueryResult<()> { Ok(()) }",
        );
        let wanted = "`mode` must be `\"exclusive\"` or `\"shared\"`";
        assert_eq!(messages, [wanted]);
    }
}
