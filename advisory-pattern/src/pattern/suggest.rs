//! The known word that is closest to a misspelled one.
//!
//! Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours. The
//! distance can be a third of the longer word's length, so that `uid` suggests `uuid` and `banana`
//! suggests nothing.

/// Finds the known word nearest to the given one, if any is near enough; capitals make no
/// difference.
///
/// The first of several that are equally near. The distance:
/// <https://en.wikipedia.org/wiki/Damerau%E2%80%93Levenshtein_distance#Optimal_string_alignment_distance>.
// For the messages of the macros and the command: it has nothing to do with patterns.
#[doc(hidden)]
pub fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = letters(given);
    let near = known.into_iter().filter_map(|word| {
        let letters = letters(word);
        let most = (letters.len().max(given.len()) / 3).max(1);
        // Also keeps a huge `given` from costing more than its length.
        if letters.len().abs_diff(given.len()) > most {
            return None;
        }
        let distance = distance(&given, &letters);
        (distance <= most && distance < letters.len()).then_some((distance, word))
    });
    near.min_by_key(|(distance, _)| *distance)
        .map(|near| near.1)
}

fn letters(word: &str) -> Vec<char> {
    word.chars().map(|c| c.to_ascii_lowercase()).collect()
}

fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substituted = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = substituted.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}
