//! A pattern is refused exactly when one key has two readings, and the help says what to write.

use advisory_pattern::{Shape, ambiguity};

use crate::{pattern, rows};

fn readings(text: &str) -> Option<(String, String)> {
    let pattern = pattern(text);
    let found = ambiguity(&pattern, &pattern.language(|_| Shape::Text))?;
    Some((found.to_string(), found.help))
}

#[test]
fn pattern_is_ambiguous_only_if_a_key_splits_in_two_ways() {
    let clear = "job, <a>, <a|raw>, <a>:<b>, <a>:<b>:<c>, <a: uuid>-<b>, <a>-<b: uuid>, \
                 <a: uuid><b>, <a><b: uuid>, <n: int>-<m: int>, <n: int>.<m: int>, \
                 <n: uint>x<m: uint>, <row: char><seat: uint>, <a: char><b: char>, \
                 <a: bool><b: bool>, <a: date><b: date>, <a: time>.<b: uint>, \
                 <a: timestamp><b: timestamp>, <a|raw>:<b: uuid>, <a|raw>:<b>, <a|raw>:<b>:<c>, \
                 <ids*>:<b>, <a>::<b>";
    for text in clear.split(", ") {
        assert_eq!(readings(text), None, "{text}");
    }
    let ambiguous = "<a>-<b>, <a><b>, <n: uint><m: uint>, <n: int>1<m: int>, <a|raw>:<b|raw>, \
                     <a|raw>:<b|raw>:<c>, <a: time><b: uint>, <a>-<b: int>, <a: date>-<b>-<c>";
    for text in ambiguous.split(", ") {
        assert!(readings(text).is_some(), "{text}");
    }
}

#[test]
fn readings_and_help_read_well() {
    let cases = r#"
<a>-<b> => "x-y-z" is both a = "x", b = "y-z" and a = "x-y", b = "z" => `-` cannot separate `<a>` from `<b>`: use `:`
<a><b> => "xyz" is both a = "x", b = "yz" and a = "xy", b = "z" => put `:` between `<a>` and `<b>`
k:<x>:<n: uint>0<m: uint> => => `0` cannot separate `<n: uint>` from `<m: uint>`: use `:`
<a|raw>:<b|raw> => "x:y:z" is both a = "x", b = "y:z" and a = "x:y", b = "z" => `<a|raw>` can hold `:` itself: leave out `raw`, or give the other placeholder a shape
"#;
    for [text, split, help] in rows(cases) {
        let (found, advice) = readings(text).expect(text);
        assert_eq!(advice, help, "{text}");
        assert!(split.is_empty() || found == split, "{text}: {found}");
    }
}
