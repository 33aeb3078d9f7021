//! The text of a pair with a derived second half: `(23405,"<announcement>")`.
//!
//! Messages, query comments and the inventory show the key in this form, and the rendered key has
//! it too. No space follows the comma, because `, ` separates the texts of several keys.

/// Returns the text of a pair: its first half, and the pattern or the rendered text that its second
/// half is derived from.
#[must_use]
pub fn pair_text(first: i32, second: &str) -> String {
    format!("({first},\"{second}\")")
}

/// Splits what [`pair_text`] gives into its halves; also with spaces around them, as people write
/// it.
#[must_use]
pub fn split_pair_text(text: &str) -> Option<(i32, &str)> {
    let pair = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    let (first, second) = pair.split_once(',')?;
    let second = second.trim().strip_prefix('"')?.strip_suffix('"')?;
    Some((first.trim().parse().ok()?, second))
}
