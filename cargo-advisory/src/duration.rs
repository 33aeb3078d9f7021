//! Reads and writes durations.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Reads `30s`, `5m`, `2h`, `500ms`, `1m30s`; a number alone is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let span = text.parse::<Span>();
    let exact = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    exact
        .and_then(Duration::try_from)
        .map_err(|_| format!("`{text}` is not a duration: write `30s`, `5m`, `2h` or `500ms`"))
}

/// Writes `0.4s`, `12s`, `2m03s`, `3h20m`, `5d02h`.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{seconds}.{}s", time.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Writes a setting: `500ms`, `90s`, `5min`, `2h`.
pub(crate) fn exact(time: Duration) -> String {
    let millis = time.as_millis();
    for (unit, size) in [("h", 3_600_000), ("min", 60_000), ("s", 1_000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

#[cfg(test)]
mod tests {
    use super::short;
    use std::time::Duration;

    #[test]
    fn times_are_written_short() {
        for (millis, text) in [
            (0, "0.0s"),
            (9_999, "9.9s"),
            (59_999, "59s"),
            (123_000, "2m03s"),
            (7_260_000, "2h01m"),
            (180_000_000, "2d02h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), text);
        }
    }
}
