//! How long: `"5s"` and its like, a `Duration`, and the words for no time at all and for no end.

use crate::errors::Errors;
use crate::literal::span_of;
use crate::tokens::ungrouped;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::LitStr;

/// What `wait` says.
pub(crate) enum Wait {
    Never,
    Forever,
    For(Duration),
}

/// A time, and how it was written.
pub(crate) struct Duration {
    value: Value,
    pub(crate) written: String,
}

enum Value {
    Milliseconds(u64, Span),
    Expression(TokenStream),
}

impl Wait {
    pub(crate) fn written(&self) -> &str {
        match self {
            Self::Never => "never",
            Self::Forever => "forever",
            Self::For(duration) => &duration.written,
        }
    }
}

impl Duration {
    /// Its milliseconds, where they are known here.
    pub(crate) fn milliseconds(&self) -> Option<(u64, Span)> {
        match self.value {
            Value::Milliseconds(number, span) => Some((number, span)),
            Value::Expression(_) => None,
        }
    }

    /// An expression of the type `Duration`.
    pub(crate) fn expression(&self, private: &TokenStream) -> TokenStream {
        match &self.value {
            Value::Milliseconds(number, span) => {
                let at = span.resolved_at(Span::mixed_site());
                quote_spanned!(at=> #private::millis(#number))
            }
            Value::Expression(expression) => expression.clone(),
        }
    }
}

/// `wait = …`.
pub(crate) fn wait(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Wait> {
    let words = Words {
        expected: "`\"never\"`, `\"forever\"`, a time such as `\"500ms\"`, `\"5s\"`, `\"2m\"` or `\"1h\"`, or a `Duration`",
        besides: &["never", "forever"],
        of_zero: "write `wait = \"never\"`",
        longest: SERVERS,
        of_too_long: "write `wait = \"forever\"`",
    };
    match words.read(value, name, errors)? {
        Read::Time(time) => Some(Wait::For(time)),
        Read::Word { word, quoted, span } => {
            if !quoted {
                errors.at(span, format_args!("write `wait = \"{word}\"`"));
            }
            Some(if word == "never" {
                Wait::Never
            } else {
                Wait::Forever
            })
        }
    }
}

/// `max_hold = …`, and a lease's `ttl`, `renew` and `keep`.
pub(crate) fn bound(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Duration> {
    let (longest, of_zero, of_too_long) = match name.to_string().as_str() {
        "ttl" => (
            LEASES,
            "write how long a grant lasts that is not renewed, such as `ttl = \"60s\"`",
            "write how soon another process may take over when this one has died, such as `ttl = \"60s\"`",
        ),
        "renew" => (
            LEASES,
            "write how often the lease is renewed, such as `renew = \"20s\"`",
            "leave `renew` out, then it is a third of `ttl`",
        ),
        "keep" => (
            LEASES,
            "leave `keep` out, then the key is free when the function returns",
            "write how long a second call is turned away, such as `keep = \"24h\"`",
        ),
        _ => (
            SERVERS,
            "write how long the body may run, such as `max_hold = \"30s\"`",
            "leave `max_hold` out, then the body runs as long as it takes",
        ),
    };
    let words = Words {
        expected: "a time such as `\"500ms\"`, `\"30s\"`, `\"2m\"` or `\"1h\"`, or a `Duration`",
        besides: &[],
        of_zero,
        longest,
        of_too_long,
    };
    match words.read(value, name, errors)? {
        Read::Time(time) => Some(time),
        Read::Word { word, span, .. } => {
            let wanted = format_args!("`{word}` is no bound: {}", words.of_too_long);
            errors.at(span, wanted);
            None
        }
    }
}

/// `ttl = …` and `renew = …`.
pub(crate) fn interval(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Duration> {
    let words = Words {
        expected: "a time such as `\"500ms\"`, `\"30s\"`, `\"2m\"` or `\"1h\"`, or a `Duration`",
        besides: &[],
        of_zero: "write one that is, such as `\"60s\"`",
        longest: SERVERS,
        of_too_long: "write less, such as `\"1h\"`; a row is taken over only when its claim has expired",
    };
    match words.read(value, name, errors)? {
        Read::Time(time) => Some(time),
        Read::Word { word, span, .. } => {
            let wanted = format_args!("`{word}` is no time: expected {}", words.expected);
            errors.at(span, wanted);
            None
        }
    }
}

/// What an argument that takes a time says of values that are none.
struct Words {
    expected: &'static str,
    /// What it takes beside times.
    besides: &'static [&'static str],
    of_zero: &'static str,
    longest: Longest,
    of_too_long: &'static str,
}

enum Read {
    Word {
        word: String,
        quoted: bool,
        span: Span,
    },
    Time(Duration),
}

impl Words {
    fn read(&self, value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Read> {
        let mut tokens = value.clone().into_iter();
        let (first, second) = (tokens.next().map(ungrouped), tokens.next());
        let span = span_of(first.as_ref());
        let word = |word: &str, quoted| Read::Word {
            word: word.to_owned(),
            quoted,
            span,
        };
        match (&first, second) {
            (Some(TokenTree::Ident(ident)), None) if ident == "never" || ident == "forever" => {
                return Some(word(&ident.to_string(), false));
            }
            (Some(TokenTree::Literal(_)), None) => {}
            _ => return Some(Read::Time(Duration::of(value))),
        }
        let Ok(literal) = syn::parse2::<LitStr>(first.into_iter().collect()) else {
            let unit = if value
                .to_string()
                .ends_with(|end: char| end.is_ascii_digit())
            {
                "s"
            } else {
                ""
            };
            let time = format!("{value}{unit}");
            errors.at(
                span,
                match milliseconds(&time) {
                    Some(_) => format!("a time is a text with a unit: write `{name} = \"{time}\"`"),
                    None => format!("`{value}` is no time: expected {}", self.expected),
                },
            );
            return None;
        };
        let text = literal.value();
        if text == "never" || text == "forever" {
            return Some(word(&text, true));
        }
        let message = match milliseconds(&text) {
            Some(0) => format!("`\"{text}\"` is no time: {}", self.of_zero),
            Some(number) if number > self.longest.0 => {
                let Longest(_, longest) = self.longest;
                format!("`\"{text}\"` is more than {longest}: {}", self.of_too_long)
            }
            Some(number) => {
                return Some(Read::Time(Duration {
                    value: Value::Milliseconds(number, span),
                    written: text,
                }));
            }
            None => {
                let close = advisory_pattern::closest(&text, self.besides.iter().copied());
                close.map_or_else(
                    || format!("`\"{text}\"` is no time: expected {}", self.expected),
                    |close| format!("`\"{text}\"` is no time: did you mean `\"{close}\"`?"),
                )
            }
        };
        errors.at(span, message);
        None
    }
}

impl Duration {
    fn of(expression: TokenStream) -> Self {
        Self {
            written: expression.to_string(),
            value: Value::Expression(expression),
        }
    }
}

/// The longest time that makes sense, in milliseconds and in words.
#[derive(Clone, Copy)]
struct Longest(u64, &'static str);

/// The server's time-outs are milliseconds in 31 bits.
const SERVERS: Longest = Longest(i32::MAX as u64, "the 24 days that the server can count");
/// A lease ends at a point in time. Who means for ever means no lease.
const LEASES: Longest = Longest(366 * 24 * 3_600_000, "a year");

/// A whole number and a unit.
fn milliseconds(text: &str) -> Option<u64> {
    let unit = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    if number.is_empty() {
        return None;
    }
    // What no `u64` holds is too long as well.
    let number = number.parse().unwrap_or(u64::MAX);
    Some(number.saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn a_time_is_a_whole_number_and_a_unit() {
        assert_eq!(milliseconds("500ms"), Some(500));
        assert_eq!(milliseconds("5s"), Some(5_000));
        assert_eq!(milliseconds("2m"), Some(120_000));
        assert_eq!(milliseconds("2min"), Some(120_000));
        assert_eq!(milliseconds("24h"), Some(86_400_000));
        assert_eq!(milliseconds("99999999999999999999h"), Some(u64::MAX));
        for none in ["", "s", "5", "5 s", "1.5s", "-5s", "5d", "5S", "s5"] {
            assert_eq!(milliseconds(none), None, "{none}");
        }
    }
}
