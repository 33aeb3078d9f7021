//! Expands source files of the repository without the compiler, and compares the result.
//!
//! Each file in `tests/ui` has exactly the messages of its `.stderr`, and the programs without a
//! mistake have none. Collisions are left to the compiler, because only its spans say where the
//! other site is. The guide's page about the expansion shows the code that is emitted.

use crate::attribute::Attribute;
use crate::tokens::{is_punct, is_word};
use crate::{claim, complete, expanded, key_part, lock_key};
use advisory_pattern::Record;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use syn::LitStr;

#[derive(Default)]
struct Expansions {
    count: usize,
    last: TokenStream,
    messages: Vec<String>,
    records: Vec<String>,
    /// The expansions of the file's own macros, each for a `$name` and the attribute's `$args`.
    templates: HashMap<String, Vec<TokenTree>>,
}

impl Expansions {
    fn of(source: &str) -> Self {
        let tokens: TokenStream = source.parse().expect("the file is Rust");
        let mut expansions = Self::default();
        expansions.visit(tokens);
        expansions
    }

    fn add(&mut self, expansion: TokenStream) {
        self.count += 1;
        self.records.extend(record_texts(&expansion));
        self.messages.extend(compile_errors(expansion.clone()));
        self.last = expansion;
    }

    /// Expands in the compiler's order: the first attribute of an item first, then its derives,
    /// then what is inside of it.
    fn visit(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            let attributes = rest.chunks_exact(2).map_while(attribute).count();
            let item = rest.get(2 * attributes);
            if item.is_some_and(|token| is_word(token, "macro_rules")) {
                at += 2 * attributes;
            } else if attributes > 0 {
                let body = rest.iter().skip(2 * attributes);
                let length = body.take_while(|token| !ends_item(token)).count();
                let item = &rest[..rest.len().min(2 * attributes + length + 1)];
                self.visit_item(&item[..2 * attributes], &item[2 * attributes..]);
                // The item's head can hold neither.
                if let Some(TokenTree::Group(body)) = item.last() {
                    self.visit(body.stream());
                }
                at += item.len();
                continue;
            }
            match &tokens[at..] {
                [
                    TokenTree::Ident(name),
                    TokenTree::Punct(bang),
                    TokenTree::Group(group),
                    ..,
                ] if name == "lock_key" && bang.as_char() == '!' => {
                    self.add(complete(group.stream(), lock_key::expand));
                    at += 3;
                }
                [
                    TokenTree::Ident(word),
                    _,
                    TokenTree::Ident(name),
                    TokenTree::Group(rules),
                    ..,
                ] if word == "macro_rules" => {
                    let text = rules.to_string().replace(' ', "");
                    if text.contains("$($name:ident:$args:tt)*") {
                        let template = template(rules.stream()).unwrap_or_default();
                        self.templates.insert(name.to_string(), template);
                    }
                    at += 4;
                }
                [
                    TokenTree::Ident(name),
                    TokenTree::Punct(bang),
                    TokenTree::Group(runs),
                    ..,
                ] if bang.as_char() == '!' && self.templates.contains_key(&name.to_string()) => {
                    let template = self.templates[&name.to_string()].clone();
                    let runs: Vec<TokenTree> = runs.stream().into_iter().collect();
                    for run in runs.chunks_exact(3) {
                        self.visit(filled(&template, &run[0], &run[2]));
                    }
                    at += 3;
                }
                _ => {
                    if let TokenTree::Group(group) = &tokens[at] {
                        self.visit(group.stream());
                    }
                    at += 1;
                }
            }
        }
    }

    fn visit_item(&mut self, attributes: &[TokenTree], item: &[TokenTree]) {
        let pairs = attributes.chunks_exact(2);
        let known = pairs.clone().filter_map(attribute).enumerate();
        let derives = known.clone().filter(|(_, (name, _))| name == "derive");
        for (_, (_, names)) in derives {
            let without = pairs
                .clone()
                .filter(|pair| attribute(pair).is_none_or(|(name, _)| name != "derive"));
            let input: TokenStream = without.flatten().chain(item).cloned().collect();
            for name in names {
                let derive = match name.to_string().as_str() {
                    "LockKey" => lock_key::derive,
                    "KeyPart" => key_part::derive,
                    "Claim" => claim::derive,
                    _ => continue,
                };
                self.add(complete(input.clone(), derive));
            }
        }
        for (at, (name, args)) in known {
            let kind = match name.as_str() {
                "advisory_lock" => Attribute::Lock,
                "advisory_lease" => Attribute::Lease,
                _ => continue,
            };
            let others = pairs.clone().enumerate().filter(|(other, _)| *other != at);
            let others = others.flat_map(|(_, pair)| pair);
            let item = others.chain(item).cloned().collect();
            self.add(expanded(kind, args, item));
        }
    }
}

/// The template with a name, and with arguments in parentheses.
fn filled(template: &[TokenTree], name: &TokenTree, args: &TokenTree) -> TokenStream {
    let TokenTree::Group(inner) = args else {
        unreachable!("arguments in parentheses: {args}")
    };
    let (mut all, mut at) = (TokenStream::new(), 0);
    while at < template.len() {
        let length = match &template[at..] {
            [dollar, TokenTree::Ident(variable), ..] if is_punct(dollar, '$') => {
                let value = if variable == "name" { name } else { args };
                all.extend([value.clone()]);
                2
            }
            // `$($args)*`
            [dollar, TokenTree::Group(_), _, ..] if is_punct(dollar, '$') => {
                all.extend(inner.stream());
                3
            }
            [TokenTree::Group(group), ..] => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                let tokens = filled(&tokens, name, args);
                all.extend([TokenTree::Group(Group::new(group.delimiter(), tokens))]);
                1
            }
            _ => {
                all.extend([template[at].clone()]);
                1
            }
        };
        at += length;
    }
    all
}

fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    }
}

/// The right side of a rule, if it starts with an attribute.
fn template(tokens: TokenStream) -> Option<Vec<TokenTree>> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    if tokens.first().is_some_and(|first| is_punct(first, '#')) {
        return Some(tokens);
    }
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => template(group.stream()),
        _ => None,
    })
}

/// The last name of an outer attribute's path, and its arguments.
fn attribute(pair: &[TokenTree]) -> Option<(String, TokenStream)> {
    let [TokenTree::Punct(hash), TokenTree::Group(group)] = pair else {
        return None;
    };
    if hash.as_char() != '#' || group.delimiter() != Delimiter::Bracket {
        return None;
    }
    let mut name = String::new();
    for token in group.stream() {
        match token {
            TokenTree::Ident(word) => name = word.to_string(),
            TokenTree::Group(args) => return Some((name, args.stream())),
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            _ => break,
        }
    }
    Some((name, TokenStream::new()))
}

pub(crate) fn messages(source: &str) -> Vec<String> {
    Expansions::of(source).messages
}

/// The records of a source's sites, in the module `app`.
pub(crate) fn records(source: &str) -> Vec<Record> {
    let expansions = Expansions::of(source);
    assert_eq!(expansions.messages, [""; 0]);
    let mut records = Vec::new();
    for text in &expansions.records {
        records.extend(Record::find_all(text.as_bytes()).expect("a record"));
    }
    records
}

/// The expansion of a source's last macro, without the spaces between its tokens.
pub(crate) fn expansion(source: &str) -> String {
    let expansions = Expansions::of(source);
    assert_eq!(expansions.messages, [""; 0], "{source}");
    joined(&expansions.last)
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

/// The texts of the `record!`s.
fn record_texts(expansion: &TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = expansion.clone().into_iter().collect();
    let mut texts = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else {
            continue;
        };
        let is_record = index > 1 && is_word(&tokens[index - 2], "record");
        if is_record && is_punct(&tokens[index - 1], '!') {
            let parts = group.stream().into_iter();
            let parts = parts.filter_map(|part| syn::parse2::<LitStr>(part.into()).ok());
            let parts: Vec<String> = parts.map(|part| part.value()).collect();
            texts.push(parts.join("app"));
        } else {
            texts.extend(record_texts(&group.stream()));
        }
    }
    texts
}

/// The messages of the `compile_error!`s.
fn compile_errors(expansion: TokenStream) -> Vec<String> {
    let mut messages = Vec::new();
    let mut is_error = false;
    for token in expansion {
        match token {
            TokenTree::Ident(name) => is_error = name == "compile_error",
            TokenTree::Group(group) if is_error => {
                let message: LitStr = syn::parse2(group.stream()).expect("a text");
                messages.push(message.value());
                is_error = false;
            }
            TokenTree::Group(group) => messages.extend(compile_errors(group.stream())),
            _ => {}
        }
    }
    messages
}

/// The messages that only a macro gives: those of the compiler have a code, or these words.
fn shown(stderr: &str) -> Vec<String> {
    let messages = stderr.split("\n\n").filter_map(|block| {
        let message = block.trim_start().strip_prefix("error: ")?;
        let (message, _) = message
            .split_once("\n  --> ")
            .or(message.split_once("\n --> "))?;
        let is_ours = !message.starts_with("unused ")
            && !message.starts_with("use of deprecated ")
            && !COLLISION.iter().any(|words| message.contains(words));
        is_ours.then(|| message.to_owned())
    });
    messages.collect()
}

/// In each message of a collision.
const COLLISION: [&str; 2] = ["is the other lock", "collides here too"];

/// Macros of other crates, which the compiler expands before the attribute below them.
const OTHER_MACROS: [&str; 2] = ["#[async_trait", "#[tokio::"];

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn is_packaged() -> bool {
    // Cargo writes this file into a package, which does not have the tests.
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("Cargo.toml.orig")
        .exists()
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
    if is_packaged() {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../advisory-runtime/docs/expansion.md");
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

#[test]
fn a_mistake_has_the_messages_that_the_compiler_shows() {
    if is_packaged() {
        return;
    }
    let (mut compared, mut differences) = (0, Vec::new());
    for path in files("tests/ui") {
        let source = std::fs::read_to_string(&path).expect("a file");
        if OTHER_MACROS.iter().any(|other| source.contains(other)) {
            continue;
        }
        let stderr = std::fs::read_to_string(path.with_extension("stderr")).expect("its messages");
        // The compiler prints tokens with other spaces.
        let text = |message: &String| message.replace(' ', "");
        let mut given: Vec<String> = Expansions::of(&source).messages.iter().map(text).collect();
        let mut shown: Vec<String> = shown(&stderr).iter().map(text).collect();
        given.sort();
        shown.sort();
        compared += given.len();
        let only = |of: &[String], other: &[String]| -> Vec<String> {
            let only = of.iter().filter(|message| !other.contains(message));
            only.cloned().collect()
        };
        if given != shown {
            differences.push((path, only(&given, &shown), only(&shown, &given)));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(compared > 300, "only {compared} messages were compared");
}

#[test]
fn what_is_written_without_a_mistake_has_no_message() {
    if is_packaged() {
        return;
    }
    let mut count = 0;
    for folder in [
        "tests/ui/pass",
        "tests/tests/it",
        "tests/tests/it/both",
        "examples",
    ] {
        for path in files(folder) {
            let source = std::fs::read_to_string(&path).expect("a file");
            let expansions = Expansions::of(&source);
            let none: [String; 0] = [];
            assert_eq!(expansions.messages, none, "{}", path.display());
            count += expansions.count;
        }
    }
    assert!(count > 400, "only {count} items were expanded");
}
