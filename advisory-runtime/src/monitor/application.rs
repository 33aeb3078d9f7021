//! What an application's name says of a lock: `booking-service [booking:<tenant_id>:<day>]`.
//!
//! A locked call puts the pattern of its key behind the name, in brackets, for as long as it runs. The server keeps 63 bytes: what is
//! longer has lost its bracket. It also writes `?`, or from PostgreSQL 16 on `\xc3`, for each byte that is not printable ASCII.

use std::fmt::Write;

/// The longest name that the server keeps, in bytes.
const LONGEST: usize = 63;

/// A backend's application, as it calls itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Application {
    /// The name alone.
    pub name: String,
    /// The key pattern of the last locked call, or its key where the program shows keys.
    pub key: Option<Said>,
}

/// A key pattern, or a key, as an application's name says it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Said {
    /// The text; where the inventory has one pattern that starts like it, the whole pattern.
    pub text: String,
    /// Whether the server has cut it off, and nothing knows how it goes on.
    pub is_cut: bool,
}

impl Application {
    /// Every way to read a name, the likeliest first: a name can have brackets of its own, and so can a pattern.
    pub(super) fn readings(shown: &str) -> Vec<Self> {
        let inside = shown.strip_suffix(']');
        if inside.is_none() && shown.len() != LONGEST {
            return Vec::new();
        }
        let text = inside.unwrap_or(shown);
        let reading = |name: &str, text: &str| Self {
            name: name.to_owned(),
            key: Some(Said {
                text: text.to_owned(),
                is_cut: inside.is_none(),
            }),
        };
        let mut readings: Vec<Self> = text
            .rmatch_indices(" [")
            .map(|(at, bracket)| reading(&text[..at], &text[at + bracket.len()..]))
            .collect();
        readings.extend(text.strip_prefix('[').map(|text| reading("", text)));
        readings.retain(|reading| reading.key.as_ref().is_some_and(|key| !key.text.is_empty()));
        readings
    }
}

impl Said {
    /// Whether this is the text, or the start of it where it is cut.
    pub(super) fn is(&self, text: &str) -> bool {
        let agrees = |text: &str| text == self.text || self.is_cut && text.starts_with(&self.text);
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return agrees(text);
        }
        agrees(text) || agrees(&printable(text)) || agrees(&escaped(text))
    }
}

/// As a server before PostgreSQL 16 shows it.
fn printable(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b' '..=b'~' => char::from(byte),
        _ => '?',
    });
    bytes.collect()
}

/// As later ones do.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') {
            escaped.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _: std::fmt::Result = write!(escaped, "\\x{byte:02x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::Application;

    fn read(shown: &str) -> Vec<(String, String, bool)> {
        let readings = Application::readings(shown).into_iter();
        readings
            .filter_map(|reading| {
                let key = reading.key?;
                Some((reading.name, key.text, key.is_cut))
            })
            .collect()
    }

    #[test]
    fn a_pattern_stands_in_brackets_behind_the_name() {
        let one = |name: &str, key: &str| vec![(name.to_owned(), key.to_owned(), false)];
        assert_eq!(read("api [a:<b>]"), one("api", "a:<b>"));
        assert_eq!(read("[a:<b>]"), one("", "a:<b>"));
        assert_eq!(read(" [a]"), one("", "a"));
        for plain in ["", "psql", "api [", "api []", "api [a] b", "]"] {
            assert_eq!(read(plain), [], "{plain}");
        }
    }

    #[test]
    fn brackets_of_the_name_and_of_the_pattern_give_several_readings() {
        let names: Vec<String> = read("api [prod] [a [b]]")
            .into_iter()
            .map(|(name, ..)| name)
            .collect();
        assert_eq!(names, ["api [prod] [a", "api [prod]", "api"]);
    }

    #[test]
    fn what_the_server_has_cut_has_no_closing_bracket() {
        let shown = format!("api [{}", "a".repeat(58));
        assert_eq!(shown.len(), 63);
        assert_eq!(read(&shown), [("api".to_owned(), "a".repeat(58), true)]);
        assert_eq!(read(&shown[..62]), []);
    }

    #[test]
    fn a_pattern_is_known_again_as_servers_show_it() {
        for shown in ["café:<x>", "caf??:<x>", "caf\\xc3\\xa9:<x>"] {
            let said = Application::readings(&format!("api [{shown}]"))
                .remove(0)
                .key;
            assert!(said.is_some_and(|said| said.is("café:<x>")), "{shown}");
        }
    }
}
