//! Search for a key that two patterns can both render.
//!
//! Fills a table of the pairs of positions that can be reached together, one bit each, row by row.
//! A step never goes back, so each pair is visited once. Most pairs of patterns differ in the text
//! they start or end with, and need no table.

use crate::language::Language;

/// Returns `true` if some key is in both languages; [`witness`](crate::witness()) then finds one.
/// [`Language`] has an example.
///
/// Exact for the languages, and fast enough to compare every two of some thousand sites while
/// compiling. The test for an empty intersection of two automata, by their product:
/// <https://en.wikipedia.org/wiki/Nondeterministic_finite_automaton>.
#[must_use]
pub fn overlap(a: &Language, b: &Language) -> bool {
    let mut lo = 0;
    while let (Some(left), Some(right)) = (a.fixed(lo), b.fixed(lo)) {
        if !left.intersects(right) {
            return false;
        }
        lo += 1;
    }
    let (mut a_end, mut b_end) = (a.len(), b.len());
    while a_end > lo.max(a.tail()) && b_end > lo.max(b.tail()) {
        if !a.atoms()[a_end - 1]
            .chars
            .intersects(b.atoms()[b_end - 1].chars)
        {
            return false;
        }
        a_end -= 1;
        b_end -= 1;
    }
    middles_overlap(a, lo..a_end, b, lo..b_end)
}

fn middles_overlap(
    a: &Language,
    a_range: std::ops::Range<usize>,
    b: &Language,
    b_range: std::ops::Range<usize>,
) -> bool {
    let (height, width) = (a_range.len(), b_range.len());
    let mut table = Table::new(height, width);
    table.set(0, 0);
    for i in 0..=height {
        let a_at = a_range.start + i;
        let a_reads = if i < height { a.reads(a_at) } else { None };
        let a_silent = if i < height {
            a.silent(a_at)
        } else {
            [None; 2]
        };
        let mut from = 0;
        while let Some(j) = table.next(i, from) {
            from = j + 1;
            for to in a_silent.into_iter().flatten() {
                table.set(to - a_range.start, j);
            }
            if j == width {
                continue;
            }
            let b_at = b_range.start + j;
            for to in b.silent(b_at).into_iter().flatten() {
                table.set(i, to - b_range.start);
            }
            if let (Some((a_chars, a_to)), Some((b_chars, b_to))) = (a_reads, b.reads(b_at))
                && a_chars.intersects(b_chars)
            {
                table.set(a_to - a_range.start, b_to - b_range.start);
            }
        }
    }
    table.has(height, width)
}

struct Table {
    words: usize,
    bits: Vec<u64>,
}

impl Table {
    fn new(height: usize, width: usize) -> Self {
        let words = width / 64 + 1;
        let bits = vec![0; (height + 1) * words];
        Self { words, bits }
    }

    fn set(&mut self, i: usize, j: usize) {
        self.bits[i * self.words + j / 64] |= 1 << (j % 64);
    }

    fn has(&self, i: usize, j: usize) -> bool {
        self.bits[i * self.words + j / 64] >> (j % 64) & 1 == 1
    }

    /// The first bit of row `i` that is set, at `from` or after it.
    fn next(&self, i: usize, from: usize) -> Option<usize> {
        let row = &self.bits[i * self.words..(i + 1) * self.words];
        let (mut word, mut shift) = (from / 64, from % 64);
        loop {
            let rest = *row.get(word)? >> shift;
            if rest != 0 {
                return Some(word * 64 + shift + rest.trailing_zeros() as usize);
            }
            (word, shift) = (word + 1, 0);
        }
    }
}
