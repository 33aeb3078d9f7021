//! Aligns rows of cells in columns.
//!
//! Each column is as wide as its widest cell. On a narrow terminal the widest columns shrink, and
//! their cells continue in the next line, so that nothing is cut off. If the terminal is too narrow
//! for that, each row is a paragraph.

use std::fmt::Write;

use anstyle::Style;

use crate::display_width::{self, clusters, wrapped};
use crate::screen::BOLD;
use crate::text::joined;

const GAP: usize = 2;

pub(crate) struct Columns<const N: usize> {
    /// Separated by ` | `.
    pub(crate) heads: &'static str,
    pub(crate) styles: [Style; N],
    /// The least width of a column. Less is unreadable.
    pub(crate) narrowest: usize,
}

impl<const N: usize> Columns<N> {
    /// Writes a line of heads and the rows; nothing without rows.
    pub(crate) fn draw(&self, rows: &[[String; N]], width: Option<usize>) -> String {
        let mut text = String::new();
        if rows.is_empty() {
            return text;
        }
        let Some(widths) = self.fit(rows, width) else {
            for row in rows {
                self.paragraph(&mut text, row);
            }
            return wrapped(&text, width);
        };
        line(&mut text, &self.heads(), widths, [BOLD; N]);
        for row in rows {
            line(&mut text, row, widths, self.styles);
        }
        text
    }

    fn heads(&self) -> [String; N] {
        let mut heads = self.heads.split(" | ");
        std::array::from_fn(|_| heads.next().unwrap_or_default().to_owned())
    }

    /// The first cell, and below it the other cells with their heads.
    fn paragraph(&self, text: &mut String, row: &[String; N]) {
        let first = self.styles[0];
        let _ = writeln!(text, "{first}{}{first:#}", row[0]);
        let cells = self.heads.split(" | ").zip(row).skip(1);
        let cells = cells.filter(|(_, cell)| !cell.is_empty());
        let cells = cells.map(|(head, cell)| format!("{} {cell}", head.to_lowercase()));
        let _ = writeln!(text, "    {}", joined(cells, ", "));
    }

    pub(crate) fn width(&self, rows: &[[String; N]]) -> usize {
        self.fit(rows, None)
            .map_or(0, |widths| total_width(&widths))
    }

    /// The widths of the columns: those of their cells, or less on a narrow terminal. `None` if the
    /// terminal is too narrow.
    fn fit(&self, rows: &[[String; N]], width: Option<usize>) -> Option<[usize; N]> {
        let heads = self.heads();
        let mut widths: [usize; N] = std::array::from_fn(|column| {
            let cells = || rows.iter().map(|row| &row[column]);
            // An empty column is left out.
            if cells().all(String::is_empty) {
                return 0;
            }
            let widths = cells()
                .chain([&heads[column]])
                .map(|cell| display_width::of(cell));
            widths.max().unwrap_or_default()
        });
        while width.is_some_and(|width| total_width(&widths) > width) {
            let widest = widths.iter_mut().max();
            match widest {
                Some(widest) if *widest > self.narrowest => *widest -= 1,
                _ => return None,
            }
        }
        Some(widths)
    }
}

fn total_width<const N: usize>(widths: &[usize; N]) -> usize {
    let columns = widths.iter().filter(|width| **width > 0).count();
    widths.iter().sum::<usize>() + GAP * columns.saturating_sub(1)
}

fn line<const N: usize>(
    text: &mut String,
    row: &[String; N],
    widths: [usize; N],
    styles: [Style; N],
) {
    let cells = row.iter().zip(widths);
    let cells: Vec<Vec<String>> = cells.map(|(cell, width)| wrap(cell, width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    for at in 0..height {
        let mut padding = 0;
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            if width == 0 {
                continue;
            }
            let part = cell.get(at).map_or("", String::as_str);
            if !part.is_empty() {
                let style = styles[column];
                let _ = write!(text, "{:padding$}{style}{part}{style:#}", "");
                padding = 0;
            }
            // A wide character is shown whole even if its column is narrower.
            padding += (width + GAP).saturating_sub(display_width::of(part));
        }
        text.push('\n');
    }
}

/// Cuts a cell into lines, if possible after a separator.
fn wrap(cell: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = cell;
    while width > 0 && display_width::of(rest) > width {
        let (mut end, mut good, mut columns) = (0, None, 0);
        for (cluster, of_cluster) in clusters(rest) {
            columns += of_cluster;
            // The first one is always written, so that the text ends.
            if columns > width && end > 0 {
                break;
            }
            end += cluster.len();
            let is_separator = matches!(cluster, ":" | "/" | " " | "," | ">" | "_" | "-");
            if columns > width / 2 && is_separator {
                good = Some(end);
            }
        }
        let (line, tail) = rest.split_at(good.unwrap_or(end));
        lines.push(line.trim_end().to_owned());
        rest = tail;
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Columns, display_width, wrap};
    use crate::screen::PLAIN;

    #[test]
    fn cells_are_cut_after_separators() {
        let lines = ["src/booking_", "repository.rs:23"];
        assert_eq!(wrap("src/booking_repository.rs:23", 20), lines);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn a_cell_is_cut_by_what_a_terminal_shows() {
        assert_eq!(wrap("予約:日付", 5), ["予約:", "日付"]);
        assert_eq!(wrap("予約日付", 5), ["予約", "日付"]);
        assert_eq!(wrap("ae\u{301}ou", 2), ["ae\u{301}", "ou"]);
        // It is wider than the column.
        assert_eq!(wrap("予約", 1), ["予", "約"]);
    }

    fn plain<const N: usize>(
        grid: &Columns<N>,
        rows: &[[String; N]],
        width: Option<usize>,
    ) -> String {
        anstream::adapter::strip_str(&grid.draw(rows, width)).to_string()
    }

    #[test]
    fn every_width_shows_every_cell_and_no_line_is_wider() {
        let grid = Columns {
            heads: "KEY | NAME | PLACE",
            styles: [PLAIN; 3],
            narrowest: 20,
        };
        let row = [
            "<######_##>:#######:<#######_##>",
            "balance",
            "#######_#######::#######_##########:##",
        ];
        let row = row.map(str::to_owned);
        let letters = |text: &str| text.matches('#').count();
        for width in 20..120 {
            let drawn = plain(&grid, std::slice::from_ref(&row), Some(width));
            for line in drawn.lines() {
                let is_word = line.trim_start().split(' ').count() == 1;
                let fits = display_width::of(line) <= width;
                assert!(fits || is_word, "{width}: {drawn}");
            }
            assert!(drawn.contains("balance"), "{width}: {drawn}");
            assert_eq!(letters(&drawn), letters(&row.concat()), "{width}: {drawn}");
        }
    }

    #[test]
    fn columns_begin_in_the_same_cell_of_each_line() {
        let grid = Columns {
            heads: "KEY | PLACE",
            styles: [PLAIN; 2],
            narrowest: 4,
        };
        let keys = ["予約", "Ame\u{301}lie", "📅", "booking"];
        let rows = keys.map(|key| [key.to_owned(), "#here".to_owned()]);
        for width in [None, Some(12), Some(11)] {
            let drawn = plain(&grid, &rows, width);
            let before = |line: &str| Some(display_width::of(line.split_once('#')?.0));
            let starts: BTreeSet<usize> = drawn.lines().filter_map(before).collect();
            assert_eq!(starts.len(), 1, "{drawn}");
            let widest = drawn.lines().map(display_width::of).max().unwrap();
            assert!(width.is_none_or(|width| widest <= width), "{drawn}");
        }
        assert_eq!(grid.width(&rows), 7 + 2 + 5);
    }
}
