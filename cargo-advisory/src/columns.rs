//! How are rows of cells aligned in columns?
//!
//! Each column is as wide as its widest cell. On a narrow terminal the widest columns shrink, and their cells continue in the next
//! line, so that nothing is cut off.

use std::fmt::Write;

use anstyle::Style;

use crate::screen::BOLD;

const GAP: usize = 2;

/// The columns of a table.
pub(crate) struct Columns<const N: usize> {
    pub(crate) heads: [&'static str; N],
    pub(crate) styles: [Style; N],
    /// A column is at least as wide as this, because less is unreadable.
    pub(crate) narrowest: usize,
}

impl<const N: usize> Columns<N> {
    /// Writes a line of heads and the rows; `None` if the terminal is too narrow.
    pub(crate) fn draw(&self, rows: &[[String; N]], width: Option<usize>) -> Option<String> {
        let widths = self.fit(rows, width)?;
        let mut text = String::new();
        let heads = self.heads.map(str::to_owned);
        line(&mut text, &heads, widths, [BOLD; N]);
        for row in rows {
            line(&mut text, row, widths, self.styles);
        }
        Some(text)
    }

    /// The width of the table without a limit.
    pub(crate) fn width(&self, rows: &[[String; N]]) -> usize {
        self.fit(rows, None)
            .map_or(0, |widths| total_width(&widths))
    }

    /// The columns' widths: those of their cells, or less on a narrow terminal; `None` if it is too narrow.
    fn fit(&self, rows: &[[String; N]], width: Option<usize>) -> Option<[usize; N]> {
        let mut widths = self.heads.map(|head| head.chars().count());
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        // An empty column is left out.
        for (column, width) in widths.iter_mut().enumerate() {
            if rows.iter().all(|row| row[column].is_empty()) {
                *width = 0;
            }
        }
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
    let cells: Vec<Vec<String>> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| wrap(cell, width))
        .collect();
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
            padding += width + GAP - part.chars().count();
        }
        text.push('\n');
    }
}

/// Cuts a cell into lines, if possible after a separator.
fn wrap(cell: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = cell.chars().collect();
    while width > 0 && rest.len() > width {
        let is_good = |at: &usize| matches!(rest[*at], ':' | '/' | ' ' | ',' | '>' | '_' | '-');
        let good = (width / 2..width).rev().find(is_good);
        let end = good.map_or(width, |at| at + 1);
        let tail = rest.split_off(end);
        lines.push(rest.into_iter().collect::<String>().trim_end().to_owned());
        rest = tail;
    }
    lines.push(rest.into_iter().collect());
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn cells_are_cut_behind_separators() {
        assert_eq!(
            wrap("src/booking_repository.rs:23", 20),
            ["src/booking_", "repository.rs:23"]
        );
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
