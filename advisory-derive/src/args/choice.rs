//! Arguments that take one of a few quoted words.
//!
//! Each word is listed with its meaning, so that no word can be accepted and then be read as another one.

use super::value::{listed, string};
use crate::errors::Errors;
use advisory_pattern::KeySpace;
use proc_macro2::{Ident, TokenStream};
use syn::LitStr;

/// How long a lock is held.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    #[default]
    Xact,
    Session,
    Lease,
}

impl Scope {
    pub(crate) const ALL: [Self; 3] = [Self::Xact, Self::Session, Self::Lease];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xact => "xact",
            Self::Session => "session",
            Self::Lease => "lease",
        }
    }

    pub(crate) const fn key_space(self) -> KeySpace {
        match self {
            Self::Xact | Self::Session => KeySpace::Advisory,
            Self::Lease => KeySpace::Lease,
        }
    }
}

/// The isolation level of the transaction that a call begins.
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

/// The meaning of the word that `name = …` was given.
pub(crate) fn choice<T: Copy, const N: usize>(
    value: TokenStream,
    name: &Ident,
    meanings: [(&'static str, T); N],
    errors: &mut Errors,
) -> Option<T> {
    let unquoted: Option<Ident> = syn::parse2(value.clone()).ok();
    let (given, span) = if let Some(word) = &unquoted {
        (word.to_string(), word.span())
    } else {
        let literal: LitStr = string(value, name, errors)?;
        (literal.value(), literal.span())
    };
    let Some((_, meaning)) = meanings.iter().find(|(word, _)| *word == given) else {
        let words = meanings.map(|(word, _)| word);
        let hint = advisory_pattern::closest(&given, words).map_or_else(
            || {
                let quoted = words.map(|word| format!("\"{word}\""));
                format!(
                    "expected {}",
                    listed(&quoted.each_ref().map(String::as_str))
                )
            },
            |close| format!("did you mean `\"{close}\"`?"),
        );
        errors.at(span, format_args!("unknown {name} `{given}`: {hint}"));
        return None;
    };
    if unquoted.is_some() {
        errors.at(span, format_args!("write `{name} = \"{given}\"`"));
        return None;
    }
    Some(*meaning)
}
