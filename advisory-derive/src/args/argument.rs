//! One argument `name = value`, whichever macro it belongs to.

use super::value::listed;
use crate::errors::Errors;
use crate::tokens::{is_punct, span_of, spelled};
use proc_macro2::{Ident, TokenStream, TokenTree};

/// The name of an argument, one of `known`; `value` is what follows its `=`.
pub(crate) fn name_of(
    first: Option<TokenTree>,
    value: &TokenStream,
    known: &[&str],
    errors: &mut Errors,
) -> Option<Ident> {
    let Some(TokenTree::Ident(name)) = first else {
        errors.at(
            span_of(first.as_ref()),
            format_args!("expected an argument: {}", listed(known)),
        );
        return None;
    };
    let word = name.to_string();
    if known.contains(&word.as_str()) {
        return Some(name);
    }
    if word == "_conn" {
        let hint = "to leave the connection unused, write `_ = conn;` in the body";
        errors.at(
            name.span(),
            format_args!("unknown argument `{word}`: {hint}"),
        );
        return None;
    }
    if is_retry(&word) {
        let why = "a call is never repeated, because its body may have had effects: repeat the whole request, as \
                   `advisory_runtime::guide::commits` shows, or write how long to wait for the lock, `wait = \"5s\"`";
        let wanted = format_args!("unknown argument `{word}`: {why}");
        errors.at(name.span(), wanted);
        return None;
    }
    let hint = match suggestion(&word).filter(|meant| known.contains(&first_word(meant))) {
        // `shared = false` is not `mode = "shared"`.
        Some(meant) if meant.contains(' ') && value.to_string() != "false" => {
            format!("write `{meant}`")
        }
        Some(meant) => format!("did you mean `{}`?", first_word(meant)),
        None => advisory_pattern::closest(&word, known.iter().copied()).map_or_else(
            || format!("expected {}", listed(known)),
            |close| format!("did you mean `{close}`?"),
        ),
    };
    errors.at(
        name.span(),
        format_args!("unknown argument `{word}`: {hint}"),
    );
    None
}

/// The argument that corresponds to a word of another library or of PostgreSQL, with its value if the word implies one.
pub(crate) fn suggestion(word: &str) -> Option<&'static str> {
    Some(match word {
        "timeout" | "lock_timeout" | "wait_timeout" | "timeout_ms" | "max_wait" | "wait_for" => {
            "wait"
        }
        "nowait" | "no_wait" | "try" | "try_lock" | "non_blocking" | "nonblocking"
        | "skip_locked" => "wait = \"never\"",
        "blocking" | "block" => "wait = \"forever\"",
        "shared" | "read" | "reader" => "mode = \"shared\"",
        "exclusive" | "write" | "writer" => "mode = \"exclusive\"",
        "xact" | "transaction" | "tx" | "transactional" => "scope = \"xact\"",
        "session" => "scope = \"session\"",
        "lease" => "scope = \"lease\"",
        "level" | "kind" | "lifetime" => "scope",
        "connection" | "db" | "database" => "conn",
        "id" | "lock" | "lock_id" | "lock_key" | "pattern" | "on" => "key",
        "error" | "map_err" | "on_error" | "into_error" => "err",
        "otherwise" | "or_else" | "on_busy" | "on_locked" | "if_held" | "if_locked"
        | "fallback" | "default" | "skip" => "on_held",
        "on_kept" | "on_completed" | "on_complete" | "if_done" | "already_done"
        | "on_duplicate" => "on_done",
        "max_duration" | "deadline" | "hold_timeout" | "max_time" | "statement_timeout" => {
            "max_hold"
        }
        "expires" | "expiry" | "expire" | "lease_duration" | "lease_time" | "duration" => "ttl",
        "heartbeat" | "refresh" | "interval" => "renew",
        "retain" | "keep_for" | "once" => "keep",
        "hash" | "hasher" | "algorithm" => "derivation",
        "label" | "lock_name" => "name",
        "table" | "tables" => "guards",
        "reentrant" | "savepoint" => "nested",
        "isolation_level" | "transaction_isolation" => "isolation",
        "as" | "guard" | "binding" | "witness" => "handle",
        "values" | "let" => "with",
        _ => return None,
    })
}

/// Whether a word asks for more calls, as other libraries offer them.
fn is_retry(word: &str) -> bool {
    let others = [
        "attempts",
        "backoff",
        "max_attempts",
        "max_retries",
        "retries",
        "retry",
        "tries",
    ];
    others.contains(&word)
}

fn first_word(argument: &str) -> &str {
    argument.split(' ').next().unwrap_or_default()
}

/// The value of an argument, after its name and `=`.
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
    errors.at(name.span(), format_args!("write `{name} = {value}`"));
    None
}

/// Sets an argument. Only this function reports that one is given twice.
pub(crate) fn set<T>(slot: &mut Option<T>, name: &Ident, value: Option<T>, errors: &mut Errors) {
    if slot.is_some() {
        let message = match name.to_string().as_str() {
            "key" | "keys" => {
                "the key is given twice: write `key = …` for one key, `keys = […]` for several"
                    .to_owned()
            }
            name => format!("`{name}` is given twice"),
        };
        errors.at(name.span(), message);
    } else {
        *slot = value;
    }
}

/// Says that an argument is listed as known, and that no code reads it.
pub(crate) fn not_implemented(name: &Ident, errors: &mut Errors) {
    errors.at(name.span(), format_args!("`{name}` is not implemented"));
}
