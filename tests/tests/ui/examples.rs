//! Everything public of the libraries has an example, but for the keys of well-known tools, whose module has one:
//! `scripts/docs-as-published` says so of the pages.

use crate::layers::paths_of;
use crate::packages::root;
use std::fs;
use std::path::{Path, PathBuf};

/// A module that a program can name, and what it has without an example.
struct Module {
    file: PathBuf,
    text: String,
}

impl Module {
    fn read(file: PathBuf) -> Self {
        let text =
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Self { file, text }
    }

    /// The folder of its submodules.
    fn folder(&self) -> PathBuf {
        match self.file.file_stem() {
            Some(stem) if stem == "lib" => self.file.with_file_name(""),
            _ => self.file.with_extension(""),
        }
    }

    /// The modules that it declares as public, and does not hide.
    fn modules(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for name in self.shown("pub mod ") {
            let name = name.split([';', ' ']).next().unwrap_or_default();
            let file = self.folder().join(format!("{name}.rs"));
            if file.exists() {
                found.push(Self::read(file));
            }
        }
        found
    }

    /// What follows `start` at the begin of a line, unless the item is hidden.
    fn shown(&self, start: &str) -> Vec<&str> {
        let places = self.text.match_indices(start);
        let begins = places.filter(|(at, _)| *at == 0 || self.text.as_bytes()[at - 1] == b'\n');
        let shown = begins.filter(|(at, _)| !head(&self.text, *at).contains("#[doc(hidden)]"));
        shown
            .map(|(at, found)| &self.text[at + found.len()..])
            .collect()
    }

    /// The items that it exports from private modules: each with the file in which it can be.
    fn exports(&self, source: &Path) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        for tree in self.shown("pub use ") {
            let tree = tree.split(';').next().unwrap_or_default();
            for path in paths_of(tree) {
                let (from, path) = match path.strip_prefix("crate::") {
                    Some(path) => (source.to_owned(), path.to_owned()),
                    None => (self.folder(), path),
                };
                let Some((module, item)) = path.rsplit_once("::") else {
                    continue;
                };
                let file = from.join(format!("{}.rs", module.replace("::", "/")));
                if file.exists() {
                    let item = item.trim();
                    found.push((Self::read(file).origin(item, source), item.to_owned()));
                }
            }
        }
        found
    }

    /// The file of the item: this one, or that of the module from which this one exports it.
    fn origin(self, item: &str, source: &Path) -> PathBuf {
        if items(&self.text).iter().any(|(name, _)| *name == item) {
            return self.file;
        }
        let mut exports = self.exports(source).into_iter();
        let found = exports.find(|(_, name)| name == item);
        found.map_or(self.file, |(file, _)| file)
    }
}

/// The doc comment and the attributes in front of an item: up to the blank line before them.
fn head(text: &str, at: usize) -> &str {
    let before = &text[..at];
    before
        .rfind("\n\n")
        .map_or(before, |blank| &before[blank..])
}

/// What a file declares as public: each with its doc comment, or for a type with the methods behind it.
fn items(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let words = [
            "pub fn ",
            "pub async fn ",
            "pub const ",
            "pub trait ",
            "pub type ",
        ];
        let types = ["pub struct ", "pub enum "];
        let after = |words: &[&str]| words.iter().find_map(|word| line.strip_prefix(word));
        if let Some(rest) = after(&words).or_else(|| after(&types)) {
            let rest = rest.strip_prefix("fn ").unwrap_or(rest);
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
            let name = name.clone().next().unwrap_or_default();
            let doc = head(text, at);
            let is_type = after(&types).is_some() && !doc.contains("#[doc(hidden)]");
            let mut methods = methods(text, name).filter(|text| is_type && has_example(text));
            found.push((name, methods.next().unwrap_or(doc)));
        }
        at += line.len();
    }
    found
}

/// The blocks of a type's own methods.
fn methods<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let blocks = text.match_indices("\nimpl").map(|(at, _)| &text[at..]);
    let own = blocks.filter(move |block| {
        let head = block.split('{').next().unwrap_or_default();
        let mut words = head.split(|c: char| !c.is_alphanumeric() && c != '_');
        !head.contains(" for ") && words.any(|word| word == name)
    });
    own.filter_map(|block| block.split("\n}\n").next())
}

/// An indented block of code would do, and nobody writes one.
fn has_example(doc: &str) -> bool {
    let fences = doc.lines().filter_map(|line| line.split_once("```"));
    fences.step_by(2).any(|(_, language)| {
        matches!(
            language,
            "" | "no_run" | "ignore" | "compile_fail" | "standalone_crate"
        )
    })
}

/// The public items of a crate that lack an example, and how many items it has.
fn lacking(krate: &str) -> (Vec<String>, usize) {
    let source = root().join(krate).join("src");
    let mut left = vec![Module::read(source.join("lib.rs"))];
    let (mut lacking, mut looked_at) = (Vec::new(), 0);
    while let Some(module) = left.pop() {
        let name = module.file.strip_prefix(&source);
        let name = name.unwrap_or(&module.file).display().to_string();
        let own = module
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"));
        if !has_example(&own.collect::<Vec<_>>().join("\n")) && name != "guide.rs" {
            lacking.push(format!("{krate}/{name}"));
        }
        let mut check = |place: &str, text: &str, wanted: Option<&str>| {
            for (item, doc) in items(text) {
                let is_wanted = wanted.is_none_or(|wanted| wanted == item);
                let is_number = place == "key/well_known.rs" && item == item.to_uppercase();
                if is_wanted && !is_number && !doc.contains("#[doc(hidden)]") {
                    looked_at += 1;
                    if !has_example(doc) {
                        lacking.push(format!("{krate}/{place}: {item}"));
                    }
                }
            }
        };
        check(&name, &module.text, None);
        for (file, item) in module.exports(&source) {
            let text = Module::read(file.clone()).text;
            let place = file.strip_prefix(&source).unwrap_or(&file);
            check(&place.display().to_string(), &text, Some(&item));
            let exported = file.with_extension("").join(format!("{item}.rs"));
            if text.contains(&format!("\npub mod {item};\n")) {
                left.push(Module::read(exported));
            }
        }
        left.extend(module.modules());
    }
    (lacking, looked_at)
}

#[test]
fn whatever_is_public_has_an_example() {
    let libraries = [
        ("advisory-pattern", 40),
        ("advisory-derive", 5),
        ("advisory-runtime", 100),
    ];
    let mut without = Vec::new();
    for (krate, least) in libraries {
        let (lacking, looked_at) = lacking(krate);
        assert!(
            looked_at > least,
            "only {looked_at} items were found in {krate}"
        );
        without.extend(lacking);
    }
    assert!(without.is_empty(), "no example:\n{}", without.join("\n"));
}
