//! Tests that the guide's page about the expansion shows what the attribute emits.
//!
//! The page is the snapshot: each pair of its examples is an annotated function and its expansion.
//! A doctest compiles both.

use crate::args::{lease, lock};
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::site::lease::LeaseSite;
use crate::site::lock::LockSite;
use crate::tokens::is_word;
use crate::{expand, function};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::Path;

/// The tokens of each example, without its hidden lines.
fn examples(page: &str) -> Vec<TokenStream> {
    let fenced = page.split("```").skip(1).step_by(2);
    let shown = fenced.filter_map(|block| block.strip_prefix('\n'));
    shown
        .map(|block| {
            let lines = block.lines().filter(|line| !line.starts_with("# "));
            let text = lines.collect::<Vec<_>>().join("\n");
            text.parse().expect("an example is Rust")
        })
        .collect()
}

/// The expansion of an attribute and the function below it, without the record.
fn expanded(annotated: &TokenStream) -> TokenStream {
    let mut tokens = annotated.clone().into_iter().skip(1);
    let Some(TokenTree::Group(written)) = tokens.next() else {
        unreachable!("an annotated function: {annotated}")
    };
    let mut written = written.stream().into_iter();
    let (name, args) = (written.next(), written.next());
    let Some(TokenTree::Group(args)) = args else {
        unreachable!("an annotated function: {annotated}")
    };
    assert_eq!(args.delimiter(), Delimiter::Parenthesis);
    let is_lease = name.is_some_and(|name| is_word(&name, "advisory_lease"));
    let attribute = if is_lease {
        Attribute::Lease
    } else {
        Attribute::Lock
    };
    let mut errors = Errors::default();
    let function = function::parse(tokens.collect(), attribute, &mut errors);
    let expansion = match attribute {
        Attribute::Lock => {
            let args = lock::parse(args.stream(), &mut errors);
            let site = LockSite::new(args, function, &mut errors);
            site.map(|mut lock| {
                lock.site.record = TokenStream::new();
                expand::lock::expand(&lock)
            })
        }
        Attribute::Lease => {
            let args = lease::parse(args.stream(), &mut errors);
            let site = LeaseSite::new(args, function, &mut errors);
            site.map(|mut lease| {
                lease.site.record = TokenStream::new();
                expand::lease::expand(&lease)
            })
        }
    };
    let Ok(expansion) = errors.into_result(expansion) else {
        unreachable!("an example without a mistake: {annotated}")
    };
    expansion
}

#[test]
fn the_page_shows_what_the_attribute_expands_to() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo writes this file into a package, which does not contain the guide; in the repository a
    // missing page fails.
    if here.join("Cargo.toml.orig").exists() {
        return;
    }
    let page = here.join("../advisory-runtime/docs/expansion.md");
    let page = std::fs::read_to_string(page).expect("the guide is beside this crate");
    let examples = examples(&page);
    assert_eq!(examples.len(), 12);
    for pair in examples.chunks(2) {
        assert_eq!(
            words(&expanded(&pair[0])),
            words(&pair[1]),
            "{}",
            expanded(&pair[0])
        );
    }
}

/// Each token as a word, so that line breaks do not matter.
fn words(tokens: &TokenStream) -> Vec<String> {
    let mut words = Vec::new();
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => {
                words.push(format!("{:?}", group.delimiter()));
                words.extend(self::words(&group.stream()));
                words.push("end".to_owned());
            }
            token => words.push(token.to_string()),
        }
    }
    words
}
