//! The text of messages: what others wrote made safe for a terminal, lists, and plurals.

use std::fmt::{Display, Write as _};

/// A text from outside of this program, on one line and without characters that control a terminal.
pub(crate) fn one_line(text: &str) -> String {
    // Queries can have several lines, and indentation.
    let spaced = text.replace(controls_terminal, " ");
    let words = spaced.split(' ').filter(|word| !word.is_empty());
    joined(words, " ").trim().to_owned()
}

/// Returns `true` if a character controls a terminal instead of being displayed: control
/// characters, and characters that change the direction of the text after them or are invisible.
pub(crate) fn controls_terminal(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text from outside of this program, without characters that control a terminal. Unlike with
/// [`one_line`], spaces and line breaks are kept.
pub(crate) fn printable(text: &str) -> String {
    text.replace(|letter| letter != '\n' && controls_terminal(letter), " ")
}

/// A word for a shell, in a command that people copy.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ":_-./@".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// `1 lock`, `2 locks`.
pub(crate) fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// The items, with a separator between them.
pub(crate) fn joined(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let mut text = String::new();
    for (nth, item) in items.into_iter().enumerate() {
        let separator = if nth > 0 { separator } else { "" };
        let _ = write!(text, "{separator}{item}");
    }
    text
}

/// `` `booking`, `room` ``: names from outside of this program.
pub(crate) fn in_backticks(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names = names.into_iter();
    let names = names.map(|name| format!("`{}`", one_line(name.as_ref())));
    joined(names, ", ")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    joined(bytes.iter().map(|byte| format!("{byte:02x}")), "")
}

#[cfg(test)]
mod tests {
    use super::{one_line, printable, shell_word};

    #[test]
    fn what_others_wrote_is_one_word_of_a_command() {
        assert_eq!(shell_word("webhook:42"), "webhook:42");
        assert_eq!(shell_word("<id>"), "'<id>'");
        assert_eq!(shell_word("a'; rm -rf ."), "'a'\\''; rm -rf .'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn what_others_wrote_steers_no_terminal() {
        let steering = "\u{1b}[2Jrm\n\t -rf\u{9b}31m \u{202e}gnirts\u{7f}";
        assert_eq!(one_line(steering), "[2Jrm -rf 31m gnirts");
        assert_eq!(one_line("naïve 日本"), "naïve 日本");
        assert_eq!(printable("a  b\n\u{9b}31m\u{202e}日本"), "a  b\n 31m 日本");
    }
}
