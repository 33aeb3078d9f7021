//! The width of a text on a terminal, in cells: a Chinese character has two, a combining mark has
//! none.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::screen::KEY;

pub(crate) fn of(text: &str) -> usize {
    clusters(text).map(|(_, width)| width).sum()
}

/// The parts of a text between which it can be cut, with their widths. Each is a character with the
/// marks that change it.
pub(crate) fn clusters(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (mut end, mut width) = (rest.chars().next()?.len_utf8(), 0);
        width += rest[..end].width();
        for next in rest[end..].chars() {
            let next_end = end + next.len_utf8();
            let alone = next.width().unwrap_or(0);
            let together = rest[..next_end].width();
            if alone > 0 && together == width + alone {
                break;
            }
            (end, width) = (next_end, together);
        }
        let (cluster, tail) = rest.split_at(end);
        rest = tail;
        Some((cluster, width))
    })
}

/// At most `most` cells of a text, with a mark where it was cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if of(text) <= most {
        return text.to_owned();
    }
    let (mut end, mut width) = (0, 0);
    for (cluster, of_cluster) in clusters(text) {
        width += of_cluster;
        // The mark takes one cell.
        if width >= most {
            break;
        }
        end += cluster.len();
    }
    format!("{}…", text[..end].trim_end())
}

/// Continues each line that is wider than the screen in the next one, and keeps its indentation. A
/// line in the style of a command stays whole, so that it can be copied.
pub(crate) fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let mut all = String::with_capacity(text.len());
    let command = KEY.to_string();
    for line in text.lines() {
        if line.trim_start().starts_with(&command) {
            all.push_str(line);
            all.push('\n');
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let mut used = 0;
        let words = words(line.trim_start(), width.saturating_sub(indent));
        for (nth, word) in words.iter().enumerate() {
            let of_word = of(&plain(word));
            if nth > 0 && used + 1 + of_word > width {
                all.push('\n');
                used = 0;
            }
            let before = if used == 0 { indent } else { 1 };
            all.push_str(&" ".repeat(before));
            all.push_str(word);
            used += before + of_word;
        }
        all.push('\n');
    }
    all
}

/// The words of a line. A text in backticks is one word, unless it is wider than the screen.
fn words(line: &str, width: usize) -> Vec<String> {
    let is_open = |text: &str| text.matches('`').count() % 2 == 1;
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match words.last_mut() {
            Some(last) if is_open(last) && !is_open(line) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    let whole = |word: String| match word {
        wide if of(&plain(&wide)) > width => wide.split(' ').map(str::to_owned).collect(),
        fitting => vec![fitting],
    };
    words.into_iter().flat_map(whole).collect()
}

/// The number of lines of a terminal that a line takes.
pub(crate) fn height(line: &str, width: usize) -> usize {
    of(&plain(line)).div_ceil(width.max(1)).max(1)
}

/// A text without its styles.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::{KEY, cut, height, of, wrapped};

    #[test]
    fn a_width_counts_cells() {
        for (text, width) in [
            ("", 0),
            ("booking", 7),
            ("└─ waits", 8),
            ("予約", 4),
            ("ｱｲ", 2),
            ("e\u{301}", 1),
            ("📅", 2),
            ("👍\u{1f3fd}", 2),
            ("\u{200b}a", 1),
        ] {
            assert_eq!(of(text), width, "{text:?}");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_and_fits() {
        assert_eq!(cut("SELECT 1", 8), "SELECT 1");
        assert_eq!(cut("SELECT 12", 8), "SELECT…");
        assert_eq!(cut("予約日付", 8), "予約日付");
        assert_eq!(cut("予約日付", 7), "予約日…");
        assert_eq!(cut("予約日付", 6), "予約…");
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
        assert_eq!(cut("👍\u{1f3fd}👍\u{1f3fd}", 3), "👍\u{1f3fd}…");
        assert_eq!(cut("予", 1), "…");
        for most in 1..20 {
            let text = "予約 Ame\u{301}lie 📅 👍\u{1f3fd} ☁\u{fe0f} 한국어";
            assert!(of(&cut(text, most)) <= most, "{most}");
        }
    }

    #[test]
    fn a_line_goes_on_in_the_next_one_unless_it_is_a_command() {
        let text = format!("    one two three\n    {KEY}cargo advisory locks{KEY:#}\n");
        let narrow = format!("    one two\n    three\n    {KEY}cargo advisory locks{KEY:#}\n");
        assert_eq!(wrapped(&text, Some(12)), narrow);
        assert_eq!(wrapped(&text, None), text);
        let lines: usize = text.lines().map(|line| height(line, 12)).sum();
        assert_eq!(lines, 2 + 2);
        assert_eq!(height("", 12), 1);
        assert_eq!(wrapped("a: `b c`, d", Some(8)), "a:\n`b c`, d\n");
        assert_eq!(wrapped("a `b cde fgh`", Some(8)), "a `b cde\nfgh`\n");
        assert_eq!(wrapped("a ` b c d e", Some(8)), "a ` b c\nd e\n");
    }
}
