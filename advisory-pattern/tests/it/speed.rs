//! Time to compare each pair of a thousand patterns.

use std::time::Instant;

use advisory_pattern::{Language, overlap};

use crate::language;

fn compare(name: &str, pattern: impl Fn(usize) -> String) {
    let languages: Vec<Language> = (0..1_000).map(|n| language(&pattern(n))).collect();
    let start = Instant::now();
    let mut collisions = 0;
    for (i, a) in languages.iter().enumerate() {
        collisions += languages[i + 1..].iter().filter(|b| overlap(a, b)).count();
    }
    eprintln!(
        "{name}: {collisions} of 499500 overlap, {:?}",
        start.elapsed()
    );
}

#[test]
#[ignore = "prints times for people; run it with --release -- --ignored --nocapture"]
fn thousand_patterns_are_compared_in_no_time() {
    compare("first word differs", |n| {
        format!("word{n:04}:<tenant: uuid>:<day: date>")
    });
    compare("last word differs", |n| {
        format!("<tenant>:<day: date>:word{n:04}")
    });
    compare("middle word differs", |n| {
        format!("<tenant>:word{n:04}:<slot: uuid>")
    });
    compare("middle word differs, raw", |n| {
        format!("<tenant|raw>:word{n:04}:<slot|raw>")
    });
    compare("all collide", |n| format!("<tenant{n}>:<slot>:<day: date>"));
    compare("all collide, uuids", |n| {
        format!("<tenant{n}: uuid>:<slot: uuid>")
    });
}
