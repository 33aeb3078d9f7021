//! One argument `name = value`, whichever macro it belongs to.

use super::choice::{OF_LEASE, choice};
use super::duration::{Duration, Messages};
use super::value::listed;
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::tokens::{is_punct, span_of, spelled};
use proc_macro2::{Ident, TokenStream, TokenTree};

#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) names: &'a [&'a str],
    /// The attribute that has them, if it may have been meant.
    pub(crate) attribute: Option<Attribute>,
}

impl<'a> Known<'a> {
    pub(crate) const fn of(attribute: Attribute) -> Self {
        Self {
            names: attribute.arguments(),
            attribute: Some(attribute),
        }
    }

    pub(crate) const fn only(names: &'a [&'a str]) -> Self {
        Self {
            names,
            attribute: None,
        }
    }
}

/// The name of an argument, one of the known ones; `value` is what follows its `=`.
pub(crate) fn name_of(
    first: Option<TokenTree>,
    value: &TokenStream,
    known: Known<'_>,
    errors: &mut Errors,
) -> Option<Ident> {
    let Some(TokenTree::Ident(name)) = first else {
        return errors.refuse(
            span_of(first.as_ref()),
            format_args!("expected an argument: {}", listed(known.names)),
        );
    };
    let word = name.to_string();
    if known.names.contains(&word.as_str()) {
        return Some(name);
    }
    // The site reports it, because it knows the function's pool.
    if known.attribute == Some(Attribute::Lease) && word == "conn" {
        return None;
    }
    let hint = hint(&word, value, known);
    errors.refuse(
        name.span(),
        format_args!("unknown argument `{word}`: {hint}"),
    )
}

fn hint(word: &str, value: &TokenStream, known: Known<'_>) -> String {
    if is_retry(word) && known.names.contains(&"max_attempts") {
        return "did you mean `max_attempts`?".to_owned();
    }
    if is_retry(word) {
        return "a call is never repeated, because its body may have had effects: repeat the whole request, as \
                `advisory_runtime::guide::commits` shows, or write how long to wait for the lock, `wait = \"5s\"`"
            .to_owned();
    }
    if let Some(attribute) = known.attribute {
        if let Some(hint) = instead(attribute, word, value) {
            return hint.to_owned();
        }
        let other = attribute.other();
        if other.arguments().contains(&word) {
            return format!(
                "it is an argument of {}, not of {}: leave it out, or write that attribute",
                other.name(),
                attribute.name()
            );
        }
    }
    let meant = suggestion(word);
    match meant.filter(|meant| known.names.contains(&first_word(meant))) {
        // `shared = false` is not `mode = "shared"`.
        Some(meant) if meant.contains(' ') && value.to_string() != "false" => {
            return format!("write `{meant}`");
        }
        Some(meant) => return format!("did you mean `{}`?", first_word(meant)),
        None => {}
    }
    if let (Some(meant), Some(attribute)) = (meant.map(first_word), known.attribute) {
        let other = attribute.other();
        if other.arguments().contains(&meant) {
            return format!(
                "did you mean `{meant}`, which is an argument of {}?",
                other.name()
            );
        }
    }
    advisory_pattern::closest(word, known.names.iter().copied()).map_or_else(
        || format!("expected {}", listed(known.names)),
        |close| format!("did you mean `{close}`?"),
    )
}

fn instead(attribute: Attribute, word: &str, value: &TokenStream) -> Option<&'static str> {
    Some(match (attribute, word) {
        (Attribute::Lock, "_conn") => {
            "to leave the connection unused, write `_ = conn;` in the body"
        }
        (Attribute::Lock, "lease") => OF_LEASE,
        (Attribute::Lease, "keys") => "a lease has one key: write `key = …`",
        (Attribute::Lease, "mode") if value.to_string().contains("shared") => {
            "a lease has one holder: leave `mode` out, or write `#[advisory_lock]` for a lock that readers share"
        }
        (Attribute::Lease, "mode" | "permits") => "a lease has one holder: leave it out",
        (Attribute::Lease, "max_hold") => {
            "a lease is renewed until its body ends: limit the body, for example with `tokio::time::timeout`, or acquire \
             the lease without the attribute, with `lease::Request::max_hold`; `ttl` is how soon the key is free after the process dies"
        }
        (Attribute::Lease, "scope") => "a lease has no scope: leave it out",
        _ => return None,
    })
}

/// Each argument, with its value if the words imply one, and the words of other libraries and of
/// PostgreSQL that mean it.
const OTHER_WORDS: [(&str, &str); 24] = [
    (
        "wait",
        "timeout lock_timeout wait_timeout timeout_ms max_wait wait_for",
    ),
    (
        "wait = \"never\"",
        "nowait no_wait try try_lock non_blocking nonblocking skip_locked",
    ),
    ("wait = \"forever\"", "blocking block"),
    ("mode = \"shared\"", "shared read reader"),
    ("mode = \"exclusive\"", "exclusive write writer"),
    ("scope = \"xact\"", "xact transaction tx transactional"),
    ("scope = \"session\"", "session"),
    ("scope", "level kind lifetime"),
    ("conn", "connection db database"),
    ("key", "id lock lock_id lock_key pattern on"),
    ("err", "error map_err on_error into_error"),
    (
        "on_held",
        "otherwise or_else on_busy on_locked if_held if_locked fallback default skip",
    ),
    (
        "on_done",
        "on_kept on_completed on_complete if_done already_done on_duplicate",
    ),
    (
        "max_hold",
        "max_duration deadline hold_timeout max_time statement_timeout",
    ),
    (
        "ttl",
        "expires expiry expire lease_duration lease_time duration",
    ),
    ("renew", "heartbeat refresh interval"),
    ("keep", "retain keep_for once"),
    ("derivation", "hash hasher algorithm"),
    ("name", "label lock_name"),
    ("guards", "table tables"),
    ("nested", "reentrant savepoint"),
    ("isolation", "isolation_level transaction_isolation"),
    ("handle", "as guard binding witness"),
    ("with", "values let"),
];

pub(crate) fn suggestion(word: &str) -> Option<&'static str> {
    let means_it = |(_, words): &&(&str, &str)| words.split(' ').any(|other| other == word);
    OTHER_WORDS
        .iter()
        .find(means_it)
        .map(|(argument, _)| *argument)
}

/// Returns whether a word asks for more calls, as other libraries offer them.
fn is_retry(word: &str) -> bool {
    let others = "attempts backoff max_attempts max_retries retries retry tries";
    others.split(' ').any(|other| other == word)
}

fn first_word(argument: &str) -> &str {
    argument.split(' ').next().unwrap_or_default()
}

pub(crate) fn value_of(
    name: &Ident,
    equals: Option<&TokenTree>,
    value: TokenStream,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let value = match equals {
        Some(equals) if is_punct(equals, '=') && !value.is_empty() => return Some(value),
        Some(TokenTree::Group(group)) => group.stream(),
        Some(colon) if is_punct(colon, ':') => value,
        _ => TokenStream::new(),
    };
    let value = spelled(&value);
    let value = if value.is_empty() { "…" } else { &value };
    errors.refuse(name.span(), format_args!("write `{name} = {value}`"))
}

/// An argument with its value, as the macro reads it into a field.
pub(crate) struct Argument<'a> {
    pub(crate) name: &'a Ident,
    pub(crate) value: TokenStream,
    pub(crate) errors: &'a mut Errors,
}

impl Argument<'_> {
    /// Sets the field. Only this function reports that an argument is given twice.
    pub(crate) fn set<T>(
        self,
        field: &mut Option<T>,
        read: impl FnOnce(TokenStream, &Ident, &mut Errors) -> Option<T>,
    ) {
        let value = read(self.value, self.name, self.errors);
        if field.is_none() {
            *field = value;
            return;
        }
        let message = match self.name.to_string().as_str() {
            "key" | "keys" => {
                "the key is given twice: write `key = …` for one key, `keys = […]` for several"
                    .to_owned()
            }
            name => format!("`{name}` is given twice"),
        };
        self.errors.at(self.name.span(), message);
    }

    /// Sets the field to any value, which the compiler checks.
    pub(crate) fn set_expression(self, field: &mut Option<TokenStream>) {
        self.set(field, |value, _, _| Some(value));
    }

    pub(crate) fn set_time(self, field: &mut Option<Duration>, messages: &Messages) {
        self.set(field, |value, name, errors| {
            messages.time(value, name, errors)
        });
    }

    pub(crate) fn set_choice<T: Copy, const N: usize>(
        self,
        field: &mut Option<T>,
        all: [T; N],
        word: fn(T) -> &'static str,
    ) {
        self.set(field, |value, name, errors| {
            choice(&value, name, all, word, errors)
        });
    }

    /// Reports an argument that is listed as known, but that no code reads.
    pub(crate) fn not_implemented(self) {
        let message = format_args!("`{}` is not implemented", self.name);
        self.errors.at(self.name.span(), message);
    }
}
