//! Arguments that take a time: `"5s"`, a `Duration`, or the words `"never"` and `"forever"`.

mod text;

use crate::errors::Errors;
use crate::tokens::{span_of, ungrouped};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::LitStr;
use text::{duration_in_words, milliseconds};

pub(crate) enum Wait {
    Never,
    Forever,
    For(Duration),
}

/// A time, and how it was written.
pub(crate) struct Duration {
    length: Length,
    pub(crate) written: String,
}

enum Length {
    Milliseconds(u64, Span),
    Expression(TokenStream),
}

impl Wait {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "never" => Some(Self::Never),
            "forever" => Some(Self::Forever),
            _ => None,
        }
    }

    pub(crate) fn written(&self) -> &str {
        match self {
            Self::Never => "never",
            Self::Forever => "forever",
            Self::For(duration) => &duration.written,
        }
    }
}

impl Duration {
    /// Its milliseconds, if the macro knows them.
    pub(crate) fn milliseconds(&self) -> Option<(u64, Span)> {
        match self.length {
            Length::Milliseconds(number, span) => Some((number, span)),
            Length::Expression(_) => None,
        }
    }

    pub(crate) fn expression(&self, private: &TokenStream) -> TokenStream {
        match &self.length {
            Length::Milliseconds(number, span) => {
                let at = span.resolved_at(Span::mixed_site());
                quote_spanned!(at=> #private::millis(#number))
            }
            Length::Expression(expression) => expression.clone(),
        }
    }
}

const TIMES: &str = "a time such as `\"500ms\"`, `\"30s\"`, `\"2m\"` or `\"1h\"`, or a `Duration`";

pub(crate) const MAX_HOLD: Messages = Messages {
    expected: TIMES,
    words: &[],
    of_zero: "write how long the body may run, such as `max_hold = \"30s\"`",
    longest: SERVER_TIMEOUT,
    of_too_long: "leave it out to let the body run without a limit",
};

pub(crate) const TTL: Messages = Messages {
    longest: LEASE,
    of_zero: "write how long the lease lasts without a renewal, such as `ttl = \"60s\"`",
    of_too_long: "write how soon another process may take over after this one dies, such as `ttl = \"60s\"`",
    ..MAX_HOLD
};

pub(crate) const RENEW: Messages = Messages {
    longest: LEASE,
    of_zero: "write how often the lease is renewed, such as `renew = \"20s\"`",
    of_too_long: "leave it out to renew after a third of `ttl`",
    ..MAX_HOLD
};

pub(crate) const KEEP: Messages = Messages {
    longest: LEASE,
    of_zero: "leave it out to free the key when the function returns",
    of_too_long: "write how long the key stays done, such as `keep = \"24h\"`",
    ..MAX_HOLD
};

pub(crate) const POLL: Messages = Messages {
    of_zero: "write how often to try, such as `poll = \"250ms\"`",
    of_too_long: "write how often to try, such as `poll = \"250ms\"`, and how long to try as `wait`",
    ..MAX_HOLD
};

pub(crate) const POLL_MAX: Messages = Messages {
    of_zero: "write the longest pause, such as `poll_max = \"2s\"`",
    of_too_long: "write the longest pause, such as `poll_max = \"2s\"`, and how long to try as `wait`",
    ..MAX_HOLD
};

pub(crate) const CLAIM: Messages = Messages {
    of_zero: "write a time such as `\"60s\"`",
    of_too_long: "write a time such as `\"1h\"`, because a row is taken over only after its claim expires",
    ..MAX_HOLD
};

const WAIT: Messages = Messages {
    expected: "`\"never\"`, `\"forever\"`, a time such as `\"500ms\"`, `\"5s\"`, `\"2m\"` or `\"1h\"`, or a `Duration`",
    words: &["never", "forever"],
    of_zero: "write `wait = \"never\"` to try once, or `wait = \"forever\"` to wait without a limit",
    longest: SERVER_TIMEOUT,
    of_too_long: "write `wait = \"forever\"`",
};

pub(crate) fn wait(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Wait> {
    WAIT.read(value, name, errors)
}

/// The values that an argument accepts, and the messages about others.
pub(crate) struct Messages {
    expected: &'static str,
    /// The words that are accepted in addition to times.
    words: &'static [&'static str],
    of_zero: &'static str,
    longest: Longest,
    of_too_long: &'static str,
}

impl Messages {
    /// Reads an argument that takes only times.
    pub(crate) fn time(
        &self,
        value: TokenStream,
        name: &Ident,
        errors: &mut Errors,
    ) -> Option<Duration> {
        match self.read(value, name, errors)? {
            Wait::For(time) => Some(time),
            Wait::Never | Wait::Forever => None,
        }
    }

    /// The meaning of a text that is not a duration: `5 seconds`, `false`. `None` has no meaning,
    /// because in other libraries it can be no limit or no wait.
    fn suggestion(&self, text: &str) -> Option<String> {
        let text = text.trim().to_lowercase();
        let word = match text.as_str() {
            "no" | "false" | "nowait" | "no_wait" | "skip" | "try" | "immediate" => "never",
            "infinite" | "infinity" | "inf" | "unlimited" | "always" | "true" | "block" => {
                "forever"
            }
            text => return duration_in_words(text),
        };
        self.words.contains(&word).then(|| word.to_owned())
    }

    /// The suggestion for a number without a unit: PostgreSQL's settings are in milliseconds, other
    /// libraries use seconds.
    fn of_number(&self, text: &str, name: &Ident) -> Option<String> {
        let digits = text.trim().replace('_', "");
        let number: u64 = digits.parse().ok()?;
        Some(if number == 0 {
            format!("`{name}` must be longer than zero: {}", self.of_zero)
        } else {
            format!(
                "`{number}` has no unit: write `{name} = \"{number}s\"` or `{name} = \"{number}ms\"`"
            )
        })
    }

    /// Reads `never` or `forever`, which an argument without words refuses.
    fn read_word(&self, word: &str, name: &Ident, at: Span, errors: &mut Errors) -> Option<Wait> {
        if self.words.is_empty() {
            let wanted = format_args!("`{name}` cannot be `{word}`: {}", self.of_too_long);
            return errors.refuse(at, wanted);
        }
        Wait::from_word(word)
    }

    fn read(&self, value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Wait> {
        let mut tokens = value.clone().into_iter();
        let (first, second) = (tokens.next().map(ungrouped), tokens.next());
        let span = span_of(first.as_ref());
        if let (Some(TokenTree::Ident(ident)), None) = (&first, &second) {
            let ident = ident.to_string();
            let is_word = Wait::from_word(&ident).is_some();
            if is_word && !self.words.is_empty() {
                errors.at(span, format_args!("write `{name} = \"{ident}\"`"));
            }
            if is_word {
                return self.read_word(&ident, name, span, errors);
            }
            let meant = self.suggestion(&ident);
            if let ("true" | "false", Some(word)) = (ident.as_str(), meant) {
                return errors.refuse(span, format_args!("write `{name} = \"{word}\"`"));
            }
            if ident == "None" {
                let wanted = format_args!("`None` is not a duration: expected {}", self.expected);
                return errors.refuse(span, wanted);
            }
        }
        if second.is_some() || !matches!(first, Some(TokenTree::Literal(_))) {
            return Some(Wait::For(Duration {
                written: value.to_string(),
                length: Length::Expression(value),
            }));
        }
        let Ok(literal) = syn::parse2::<LitStr>(first.into_iter().collect()) else {
            let written = value.to_string();
            let message = match self.of_number(&written, name) {
                Some(message) => message,
                None if milliseconds(&written).is_some() => {
                    format!("expected a quoted duration: write `{name} = \"{written}\"`")
                }
                None => match self.suggestion(&written) {
                    Some(word) => format!("write `{name} = \"{word}\"`"),
                    None => format!("`{value}` is not a duration: expected {}", self.expected),
                },
            };
            return errors.refuse(span, message);
        };
        let text = literal.value();
        if Wait::from_word(&text).is_some() {
            return self.read_word(&text, name, span, errors);
        }
        let message = match milliseconds(&text) {
            Some(0) => format!("`{name}` must be longer than zero: {}", self.of_zero),
            Some(number) if number > self.longest.0 => {
                let Longest(_, longest) = self.longest;
                format!(
                    "`\"{text}\"` is longer than {longest}: {}",
                    self.of_too_long
                )
            }
            Some(number) => {
                return Some(Wait::For(Duration {
                    length: Length::Milliseconds(number, span),
                    written: text,
                }));
            }
            None => self.of_number(&text, name).unwrap_or_else(|| {
                let close = advisory_pattern::closest(&text, self.words.iter().copied());
                let close = self.suggestion(&text).or(close.map(ToOwned::to_owned));
                close.map_or_else(
                    || format!("`\"{text}\"` is not a duration: expected {}", self.expected),
                    |close| format!("`\"{text}\"` is not a duration: write `{name} = \"{close}\"`"),
                )
            }),
        };
        errors.refuse(span, message)
    }
}

#[derive(Clone, Copy)]
struct Longest(u64, &'static str);

/// The server's timeouts are milliseconds in 31 bits.
const SERVER_TIMEOUT: Longest = Longest(i32::MAX as u64, "the server's limit of 24 days");
/// A lease is for work that ends; a lock that never expires is not a lease.
const LEASE: Longest = Longest(366 * 24 * 3_600_000, "a year");
