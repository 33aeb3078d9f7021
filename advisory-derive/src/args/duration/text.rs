//! Parsing of the text of a duration: `5s`, or in other words `5 seconds`.

/// A duration in another spelling, as this crate spells it: `5 seconds`, `1 day`, `0.5s`, `PT5S`.
pub(super) fn duration_in_words(text: &str) -> Option<String> {
    let text = text.strip_prefix("pt").unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let (factor, unit) = match unit.trim() {
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => (1, "ms"),
        "s" | "sec" | "secs" | "second" | "seconds" => (1, "s"),
        "m" | "min" | "mins" | "minute" | "minutes" => (1, "m"),
        "h" | "hr" | "hrs" | "hour" | "hours" => (1, "h"),
        "d" | "day" | "days" => (24, "h"),
        "w" | "week" | "weeks" => (168, "h"),
        _ => return None,
    };
    let smaller = match unit {
        "s" => Some((1_000, "ms")),
        "m" => Some((60, "s")),
        "h" => Some((60, "m")),
        _ => None,
    };
    let (number, unit) = match (number.split_once('.'), smaller) {
        (None, _) => (number.parse::<u64>().ok()?.checked_mul(factor)?, unit),
        // A single digit is accepted as the fraction of `0.5`.
        (Some((whole, tenths)), Some((parts, smaller))) if tenths.len() == 1 => {
            let tenths = whole.parse::<u64>().ok()? * 10 + tenths.parse::<u64>().ok()?;
            (tenths.checked_mul(parts * factor)? / 10, smaller)
        }
        _ => return None,
    };
    (number > 0).then(|| format!("{number}{unit}"))
}

pub(super) fn milliseconds(text: &str) -> Option<u64> {
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
    // A number above `u64::MAX` is refused as too long, too.
    let number = number.parse().unwrap_or(u64::MAX);
    Some(number.saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::{duration_in_words, milliseconds};

    #[test]
    fn a_time_in_other_words_is_understood() {
        for (text, meant) in [
            ("5 seconds", "5s"),
            ("2 mins", "2m"),
            ("0.5s", "500ms"),
            ("1.5h", "90m"),
            ("1 day", "24h"),
            ("pt5s", "5s"),
            ("250 millis", "250ms"),
            ("5 m", "5m"),
            ("1.5 m", "90s"),
            ("2 weeks", "336h"),
            ("1.5 days", "2160m"),
        ] {
            assert_eq!(duration_in_words(text).as_deref(), Some(meant), "{text}");
            assert!(milliseconds(meant).is_some(), "{meant}");
        }
        for text in ", s, 0, 5, -5s, five, 1.25s, 0s, 0.0s, 5 fortnights".split(", ") {
            assert_eq!(duration_in_words(text), None, "{text}");
        }
    }

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
