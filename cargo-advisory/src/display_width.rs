//! The width of a text on a terminal, in cells: a Chinese character has two, a combining mark has none.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many cells a text takes.
pub(crate) fn of(text: &str) -> usize {
    clusters(text).map(|(_, width)| width).sum()
}

/// The parts of a text between which it can be cut, with their widths: a character with the marks that change it.
pub(crate) fn clusters(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (mut end, mut width) = (rest.chars().next()?.len_utf8(), 0);
        width += rest[..end].width();
        for next in rest[end..].chars() {
            let behind = end + next.len_utf8();
            let alone = next.width().unwrap_or(0);
            let together = rest[..behind].width();
            if alone > 0 && together == width + alone {
                break;
            }
            (end, width) = (behind, together);
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

#[cfg(test)]
mod tests {
    use super::{cut, of};

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
}
