//! Arguments that take one of a few quoted words.

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

/// The word of a `mode`, by whether it is shared.
pub(crate) const fn mode(is_shared: bool) -> &'static str {
    if is_shared { "shared" } else { "exclusive" }
}

/// The word of a `nested`, by whether it refuses.
pub(crate) const fn nested(refuses: bool) -> &'static str {
    if refuses { "refuse" } else { "allow" }
}

/// The one of `all` that the value's `word` means.
pub(crate) fn choice<T: Copy, const N: usize>(
    value: &TokenStream,
    name: &Ident,
    all: [T; N],
    word: fn(T) -> &'static str,
    errors: &mut Errors,
) -> Option<T> {
    let is_path = |token: TokenTree| matches!(token, TokenTree::Ident(_)) || is_punct(&token, ':');
    // The last word of a path: `Scope::Session`.
    let unquoted = match value.clone().into_iter().last() {
        Some(TokenTree::Ident(word)) if value.clone().into_iter().all(is_path) => Some(word),
        _ => None,
    };
    let words = all.map(word);
    let (given, span) = if let Some(word) = &unquoted {
        (word.to_string(), first_span(value))
    } else if let Ok(literal) = syn::parse2::<LitStr>(value.clone()) {
        (literal.value(), literal.span())
    } else {
        let wanted = format_args!("`{name}` must be {}", quoted(words));
        return errors.refuse(first_span(value), wanted);
    };
    let Some(meaning) = all.into_iter().find(|known| word(*known) == given) else {
        // Another derivation gives other numbers, so only its own other spellings are suggested.
        let close = if name == "derivation" {
            let plain = |word: &str| word.to_lowercase().replace(['-', '_', ' '], "");
            words.into_iter().find(|word| *word == plain(&given))
        } else {
            let known = suggestion(&given).filter(|meant| words.contains(meant));
            known.or_else(|| advisory_pattern::closest(&given, words))
        };
        let hint = match close {
            _ if name == "scope" && given.eq_ignore_ascii_case("lease") => OF_LEASE.to_owned(),
            Some(close) => format!("did you mean `\"{close}\"`?"),
            None if name == "derivation" => format!(
                "expected {}; for another function, implement `LockKey`",
                quoted(words)
            ),
            None => format!("expected {}", quoted(words)),
        };
        return errors.refuse(
            span,
            format_args!("unknown value `{given}` for `{name}`: {hint}"),
        );
    };
    if unquoted.is_some() {
        return errors.refuse(span, format_args!("write `{name} = \"{given}\"`"));
    }
    Some(meaning)
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
