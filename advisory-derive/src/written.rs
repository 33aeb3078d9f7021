//! Expands macros without the compiler, for the tests of messages, of records, and of the code that
//! is emitted, which the guide's page about the expansion shows.

use crate::attribute::Attribute;
use crate::tokens::{is_punct, is_word};
use crate::{claim, complete, expanded, lock_key};
use advisory_pattern::Record;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::Path;
use syn::LitStr;

/// The expansion of each item of a source: of its first macro, or of the `lock_key!` that ends its
/// body.
fn expansions(source: &str) -> Vec<TokenStream> {
    let tokens: TokenStream = source.parse().expect("the source is Rust");
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let items = tokens.split_inclusive(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    });
    items.map(expand).collect()
}

fn expand(item: &[TokenTree]) -> TokenStream {
    for (index, pair) in item.chunks_exact(2).enumerate() {
        let [TokenTree::Punct(_), TokenTree::Group(written)] = pair else {
            break;
        };
        let mut written = written.stream().into_iter();
        let (name, args) = (written.next(), written.next());
        let (Some(name), Some(TokenTree::Group(args))) = (name, args) else {
            continue;
        };
        let (before, after) = (&item[..2 * index], &item[2 * index + 2..]);
        let input = before.iter().chain(after).cloned().collect();
        let args = args.stream();
        return match name.to_string().as_str() {
            "advisory_lock" => expanded(Attribute::Lock, args, input),
            "advisory_lease" => expanded(Attribute::Lease, args, input),
            "derive" if args.to_string() == "Claim" => complete(input, claim::derive),
            "derive" => complete(input, lock_key::derive),
            _ => continue,
        };
    }
    let Some(TokenTree::Group(body)) = item.last() else {
        unreachable!("a body")
    };
    let Some(TokenTree::Group(input)) = body.stream().into_iter().last() else {
        unreachable!("a `lock_key!`")
    };
    complete(input.stream(), lock_key::expand)
}

/// The messages of a source's macros.
pub(crate) fn messages(source: &str) -> Vec<String> {
    let expansion = expansions(source).into_iter().collect();
    let messages = calls(expansion, "compile_error").into_iter();
    messages.map(text).collect()
}

/// The records of a source's sites, in the module `app`.
pub(crate) fn records(source: &str) -> Vec<Record> {
    assert_eq!(messages(source), [""; 0]);
    let expansion = expansions(source).into_iter().collect();
    let records = calls(expansion, "record").into_iter();
    let records = records.map(|record| Record::find_all(text(record).as_bytes()));
    records.flat_map(|found| found.expect("a record")).collect()
}

/// The expansion of a source's last item, without the spaces between its tokens.
pub(crate) fn expansion(source: &str) -> String {
    assert_eq!(messages(source), [""; 0], "{source}");
    let last = expansions(source).pop().expect("an item");
    joined(&last)
}

/// The rows of a table with `=>` between its columns.
pub(crate) fn rows<const COLUMNS: usize>(table: &str) -> impl Iterator<Item = [&str; COLUMNS]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let columns: Vec<_> = line.split("=>").map(str::trim).collect();
        columns.try_into().expect(line)
    })
}

pub(crate) fn joined(tokens: &TokenStream) -> String {
    let tokens = tokens.clone().into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            let inner = joined(&group.stream());
            match group.delimiter() {
                Delimiter::Parenthesis => format!("({inner})"),
                Delimiter::Brace => format!("{{{inner}}}"),
                Delimiter::Bracket => format!("[{inner}]"),
                Delimiter::None => inner,
            }
        }
        token => token.to_string(),
    });
    tokens.collect()
}

/// The arguments of each call of a macro.
fn calls(tokens: TokenStream, name: &str) -> Vec<TokenStream> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut calls = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else {
            continue;
        };
        match &tokens[..index] {
            [.., word, bang] if is_word(word, name) && is_punct(bang, '!') => {
                calls.push(group.stream());
            }
            _ => calls.extend(self::calls(group.stream(), name)),
        }
    }
    calls
}

/// The texts among tokens, with `app` between them.
fn text(tokens: TokenStream) -> String {
    let texts = tokens.into_iter().map(|token| syn::parse2(token.into()));
    let texts = texts.filter_map(|text: syn::Result<LitStr>| Some(text.ok()?.value()));
    texts.collect::<Vec<_>>().join("app")
}

/// The examples of a page, without their hidden lines.
fn examples(page: &str) -> impl Iterator<Item = String> {
    let fenced = page.split("```").skip(1).step_by(2);
    let shown = fenced.filter_map(|block| block.strip_prefix('\n'));
    shown.map(|block| {
        let lines = block.lines().filter(|line| !line.starts_with("# "));
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// The page is the snapshot: each pair of its examples is an annotated function and its expansion.
/// A doctest compiles both.
#[test]
fn the_page_shows_what_the_attribute_expands_to() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo writes this file into a package, which does not have the page.
    if package.join("Cargo.toml.orig").exists() {
        return;
    }
    let page = package.join("../advisory-runtime/docs/expansion.md");
    let page = std::fs::read_to_string(page).expect("the guide's page");
    let examples: Vec<String> = examples(&page).collect();
    assert_eq!(examples.len(), 12);
    for pair in examples.chunks(2) {
        let emitted = expansion(&pair[0]);
        let (before, record) = emitted
            .split_once("::advisory_runtime::__private::record!(")
            .expect("a record");
        let (_, after) = record.split_once(");").expect("the record's end");
        let shown = joined(&pair[1].parse().expect("an example is Rust"));
        assert_eq!(format!("{before}{after}"), shown, "{}", pair[0]);
    }
}
