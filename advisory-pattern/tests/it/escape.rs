//! Escaped texts: different texts are written differently.

use advisory_pattern::escape::{escape, escape_into, lower, trim, unescape};
use proptest::prelude::*;

fn escaped(text: &str) -> String {
    let mut out = String::new();
    escape_into(&mut out, text).expect("a string takes every write");
    out
}

fn lowered(text: &str) -> String {
    let mut out = String::new();
    lower(text, |piece| out.push_str(piece));
    out
}

/// Fails from the second write on.
struct Short(usize);

impl std::fmt::Write for Short {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        self.0 += 1;
        if self.0 > 1 {
            Err(std::fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// A changed rendering is a changed key, and a changed key un-locks a fleet that is half upgraded.
#[test]
fn percent_and_colon_are_escaped_and_nothing_else() {
    assert_eq!(escaped("a:b%c"), "a%3Ab%25c");
    assert_eq!(escaped("%3A"), "%253A");
    assert_eq!(escaped(" é<>/?#\n\0"), " é<>/?#\n\0");
    assert_eq!(escaped(""), "");
}

#[test]
fn pieces_are_the_longest_runs_without_escapes() {
    let mut pieces = Vec::new();
    escape("ab:c%%", |piece| pieces.push(piece.to_owned()));
    assert_eq!(pieces, ["ab", "%3A", "c", "%25", "%25"]);
}

#[test]
fn failed_write_is_the_last() {
    let mut short = Short(0);
    assert!(escape_into(&mut short, "a:b:c").is_err());
    assert_eq!(short.0, 2);
}

#[test]
fn trim_strips_spaces_and_no_other_white_space() {
    assert_eq!(trim("  a b "), "a b");
    assert_eq!(trim("\ta\u{a0}\n"), "\ta\u{a0}\n");
    assert_eq!(trim("   "), "");
}

#[test]
fn lower_changes_ascii_letters_only() {
    assert_eq!(lowered("AbZ[@`ÄÉİ"), "abz[@`ÄÉİ");
}

#[test]
fn unescape_leaves_a_percent_that_starts_no_escape() {
    assert_eq!(unescape("50%"), "50%");
    assert_eq!(unescape("%3a%25"), "%3a%");
}

proptest! {
    #[test]
    fn unescape_undoes_escape(text in "[%:253A a-cé]*") {
        prop_assert!(!escaped(&text).contains(':'));
        prop_assert_eq!(unescape(&escaped(&text)), text);
    }

    #[test]
    fn filters_may_feed_escape_piece_by_piece(text in "[%:A-Fa-f é]*") {
        let mut piecewise = String::new();
        lower(&text, |piece| escape(piece, |piece| piecewise.push_str(piece)));
        prop_assert_eq!(&piecewise, &escaped(&lowered(&text)));
        prop_assert_eq!(lowered(&text), text.to_ascii_lowercase());
    }
}
