//! The labels of the guide's links are defined, for a code host and for the documentation of the
//! crate.
//!
//! A page of the guide writes `[text][Error::find]`. The target for a code host is defined at the
//! end of the page: another page, or the file that declares the item. The target for rustdoc is
//! defined in `links.md`, which `guide.rs` puts before each page, because the first definition of a
//! label counts. `GUIDE_LINKS=overwrite` writes both.

use crate::pages::{GUIDE, collect, definition, files, read, without_code};
use crate::workspace::root;
use std::collections::BTreeSet;
use std::path::Path;

const SOURCES: &str = "advisory-runtime/src";

/// Public modules whose names also exist at the crate's root.
const IN_MODULES: [&str; 4] = ["blocking", "claim", "lease", "migrations"];

/// Before the path of a file that a package does not have. `guide.rs` defines these labels, because
/// their targets begin with the repository's address.
const REPOSITORY: &str = "repository:";

/// Before the definitions in `links.md`: an unused definition is a comment.
const COMMENT: &str = "[//]: # (What the labels of links in the pages mean in the crate's documentation. A test writes it.)\n\n";

/// The pages of the guide, by file name. `links.md` is not one.
fn pages() -> Vec<(String, String)> {
    let name = |path: &Path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let pages = files(&root().join(GUIDE), "md").into_iter();
    let pages = pages.map(|path| (name(&path), read(&path)));
    pages.filter(|(name, _)| name != "links.md").collect()
}

/// The labels in the prose of a page: of `[text][label]`, and ``[`label`]`` with its backticks.
fn labels(page: &str) -> BTreeSet<String> {
    let prose = without_code(page);
    let prose: Vec<&str> = prose
        .lines()
        .filter(|line| definition(line).is_none())
        .collect();
    let prose = prose.join("\n");
    let full = prose
        .split("][")
        .skip(1)
        .filter_map(|rest| rest.split_once(']'));
    let mut labels: BTreeSet<String> = full.map(|(label, _)| label.to_owned()).collect();
    for rest in prose.split("[`").skip(1) {
        if let Some((path, rest)) = rest.split_once("`]")
            && !path.contains('`')
            && !rest.starts_with(['(', '['])
        {
            labels.insert(format!("`{path}`"));
        }
    }
    labels
}

/// The label as a path from the crate's root, and the word before its `@`.
fn path(label: &str) -> (&str, Option<&str>) {
    let label = label.trim_matches('`');
    match label.split_once('@') {
        Some((kind, path)) => (path, Some(kind)),
        None => (label, None),
    }
}

/// The target for rustdoc.
fn item(label: &str) -> String {
    match path(label) {
        (path, Some(kind)) => format!("{kind}@crate::{path}"),
        (path, None) => format!("crate::{path}"),
    }
}

/// The target for a code host, relative to the folder of the pages.
fn file(label: &str, sources: &[(String, String)]) -> Result<String, String> {
    if let Some(path) = label.strip_prefix(REPOSITORY) {
        return Ok(format!("../../{path}"));
    }
    let (path, _) = path(label);
    let (path, heading) = match path.split_once('#') {
        Some((path, heading)) => (path, format!("#{heading}")),
        None => (path, String::new()),
    };
    let path = path.trim_end_matches("()");
    if path == "guide" {
        return Ok("README.md".to_owned());
    }
    if let Some(page) = path.strip_prefix("guide::") {
        return Ok(format!("{}.md{heading}", page.replace('_', "-")));
    }
    let module = path.replace("::", "/") + ".rs";
    if sources.iter().any(|(file, _)| *file == module) {
        return Ok(format!("../src/{module}"));
    }
    let found = declaring(sources, path).ok_or_else(|| format!("no file declares `{path}`"))?;
    Ok(format!("../src/{found}"))
}

/// The file that declares an item: of several, the one whose name matches most of the item's path.
fn declaring<'s>(sources: &'s [(String, String)], path: &str) -> Option<&'s str> {
    let (owner, name) = path.rsplit_once("::").unwrap_or(("", path));
    let owners: Vec<&str> = owner.split("::").filter(|word| !word.is_empty()).collect();
    let is_type = |word: &&str| word.starts_with(|first: char| first.is_ascii_uppercase());
    let of_type = owners.last().copied().filter(is_type);
    let modules: Vec<&str> = owners.into_iter().filter(|word| !is_type(word)).collect();
    let candidates = sources.iter().filter(|(_, text)| match of_type {
        Some(of_type) => has_member(text, of_type, name),
        None => declares(text, name),
    });
    let distance = |file: &str| {
        let words: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
        let missing = modules
            .iter()
            .filter(|module| !words.contains(module))
            .count();
        let is_anothers = IN_MODULES.contains(&words[0]) && !modules.contains(&words[0]);
        (missing, is_anothers, !words.contains(&name), words.len())
    };
    let files = candidates.map(|(file, _)| &**file);
    files.min_by_key(|file| (distance(file), *file))
}

/// Whether a line of the text declares the name publicly.
fn declares(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let Some(rest) = line.trim_start().strip_prefix("pub ") else {
            return false;
        };
        let mut words = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let kinds = [
            "fn", "async", "const", "struct", "enum", "trait", "mod", "static",
        ];
        let mut kind = words.next();
        let mut found = words.next();
        while kind.is_some_and(|word| kinds.contains(&word)) {
            if found == Some(name) {
                return true;
            }
            kind = found;
            found = words.next();
        }
        false
    })
}

/// Whether the text declares the type with such a method or variant.
fn has_member(text: &str, of_type: &str, name: &str) -> bool {
    let is_variant = |line: &str| {
        let rest = line
            .strip_prefix("    ")
            .and_then(|line| line.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with([',', ' ', '(']))
    };
    let variants = || {
        text.split_once(&format!("pub enum {of_type} {{"))
            .map(|(_, rest)| rest)
    };
    let is_impl = |line: &str| {
        let head = line
            .strip_prefix("impl")
            .and_then(|line| line.split_once('{'));
        let mut words = head
            .map_or("", |(head, _)| head)
            .split(|letter: char| !letter.is_alphanumeric());
        words.any(|word| word == of_type)
    };
    variants().is_some_and(|rest| rest.lines().take_while(|line| *line != "}").any(is_variant))
        || text.lines().any(is_impl) && declares(text, name)
}

#[test]
fn every_label_of_the_guide_is_defined() {
    let overwrite = std::env::var_os("GUIDE_LINKS").is_some();
    let folder = root().join(SOURCES);
    let mut sources = Vec::new();
    collect(&folder, &folder, &mut sources);
    let (mut all, mut wrong) = (BTreeSet::new(), Vec::new());
    let mut beside = BTreeSet::new();
    let mut check = |name: &str, is: &str, should: &str| {
        if overwrite {
            std::fs::write(root().join(GUIDE).join(name), should).expect("a page");
        } else {
            let is: BTreeSet<&str> = is.lines().collect();
            let should: BTreeSet<&str> = should.lines().collect();
            wrong.extend(
                should
                    .difference(&is)
                    .map(|line| format!("{name} has not: {line}")),
            );
            wrong.extend(
                is.difference(&should)
                    .map(|line| format!("{name} has too much: {line}")),
            );
        }
    };
    for (name, page) in pages() {
        let is_ours =
            |line: &&str| definition(line).is_some_and(|(_, target)| !target.contains("://"));
        let text: Vec<&str> = page.lines().filter(|line| !is_ours(line)).collect();
        let text = text.join("\n");
        let external: BTreeSet<&str> = text
            .lines()
            .filter_map(definition)
            .map(|(label, _)| label)
            .collect();
        let mut definitions = Vec::new();
        for label in labels(&page) {
            if !external.contains(&*label) {
                let file = file(&label, &sources).unwrap_or_else(|error| panic!("{name}: {error}"));
                definitions.push((
                    label.trim_matches('`').to_owned(),
                    format!("[{label}]: {file}"),
                ));
                let of_the_repository = label.strip_prefix(REPOSITORY);
                match of_the_repository.map(str::to_owned) {
                    Some(path) => drop(beside.insert(path)),
                    None => drop(all.insert(label)),
                }
            }
        }
        definitions.sort();
        let definitions: Vec<String> = definitions.into_iter().map(|(_, line)| line).collect();
        let should = format!("{}\n\n{}\n", text.trim_end(), definitions.join("\n"));
        check(&name, &page, &should);
    }
    let mut labels: Vec<&String> = all.iter().collect();
    labels.sort_by_key(|label| label.trim_matches('`'));
    let lines: Vec<String> = labels
        .iter()
        .map(|label| format!("[{label}]: {}", item(label)))
        .collect();
    let rustdocs = root().join(GUIDE).join("links.md");
    check(
        "links.md",
        &std::fs::read_to_string(rustdocs).unwrap_or_default(),
        &format!("{COMMENT}{}\n", lines.join("\n")),
    );
    assert!(
        wrong.is_empty(),
        "GUIDE_LINKS=overwrite writes them:\n{}",
        wrong.join("\n")
    );
    let guide = read(&folder.join("guide.rs"));
    let declared = guide.split_once("doc = repository!(").expect("a list");
    let declared = declared.1.split(')').next().unwrap_or_default();
    let declared = declared.split('"').skip(1).step_by(2).map(str::to_owned);
    assert_eq!(declared.collect::<BTreeSet<String>>(), beside, "guide.rs");
    assert!(lines.len() > 150, "only {} labels were found", lines.len());
    // A code host ignores the case of a label.
    let in_small_letters: BTreeSet<String> = all.iter().map(|label| label.to_lowercase()).collect();
    assert_eq!(in_small_letters.len(), all.len());
}

#[test]
fn the_guide_has_one_order_on_a_code_host_and_in_rustdoc() {
    let contents = read(&root().join(GUIDE).join("README.md"));
    let rows = contents.lines().filter_map(|line| line.strip_prefix("| ["));
    let order: Vec<&str> = rows
        .filter_map(|row| Some(row.split_once("][guide::")?.1.split_once("] |")?.0))
        .collect();
    let guide = read(&root().join(SOURCES).join("guide.rs"));
    let declared = guide
        .lines()
        .filter_map(|line| line.trim().strip_suffix("\";")?.split_once(" = \""));
    let declared: Vec<(&str, &str)> = declared.collect();
    assert_eq!(
        declared.iter().map(|(page, _)| *page).collect::<Vec<_>>(),
        order
    );
    assert_eq!(order.len() + 1, pages().len());
    for (index, page) in order.iter().enumerate() {
        let text = read(&root().join(GUIDE).join(page.replace('_', "-") + ".md"));
        let next = order
            .get(index + 1)
            .map(|next| format!("Next: [{}][guide::{next}]. ", next.replace('_', " ")));
        let end = format!("\n\n{}[All pages][guide].\n", next.unwrap_or_default());
        assert!(text.contains(&end), "{page} ends with: {end}");
    }
}
