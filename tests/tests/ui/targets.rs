//! The links of the documents, and those of the crates to a heading of the guide, lead somewhere.

use crate::pages::{GUIDE, collect, definition, files, read, without_code};
use crate::workspace::root;
use std::path::Path;

/// The folders of documents, relative to this crate's parent.
const DOCUMENTS: [&str; 4] = [".", "docs", "advisory-runtime/docs", "cargo-advisory"];

/// On a code host, a page beside the repository's files: the state of its workflows.
const OF_THE_HOST: &str = "../../actions/";

/// The labels in brackets that nothing defines, and that are shown with their brackets.
fn undefined(text: &str) -> Vec<String> {
    let defined: Vec<&str> = text
        .lines()
        .filter_map(definition)
        .map(|(label, _)| label)
        .collect();
    let prose: String = text.split('`').step_by(2).collect();
    let mut undefined = Vec::new();
    for (place, _) in prose.match_indices('[') {
        let Some((label, behind)) = prose[place + 1..].split_once(']') else {
            continue;
        };
        let is_label = label.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_second = prose[..place].ends_with(']');
        let is_link = behind.starts_with(['(', '[', ':']) || defined.contains(&label);
        if is_label && !is_second && !is_link {
            undefined.push(label.to_owned());
        }
    }
    undefined
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut looked_at = 0;
    let mut lost = Vec::new();
    for folder in DOCUMENTS {
        for document in files(&root().join(folder), "md") {
            if document.ends_with("links.md") {
                continue;
            }
            let text = without_code(&read(&document));
            let labels = undefined(&text).into_iter();
            lost.extend(labels.map(|label| format!("{}: [{label}]", document.display())));
            let inline = text
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'));
            let defined = text.lines().filter_map(definition);
            let targets = inline
                .map(|(target, _)| target)
                .chain(defined.map(|(_, target)| target));
            // A page of the guide, as docs.rs shows it.
            for target in targets.clone() {
                let page = target.split_once("/advisory_runtime/guide/");
                let page = page.and_then(|(_, rest)| rest.split_once('/'));
                let Some((page, _)) = page else { continue };
                let file = root().join(GUIDE).join(page.replace('_', "-") + ".md");
                if !file.exists() {
                    lost.push(format!("{}: {target}", document.display()));
                }
            }
            let is_file =
                |target: &&str| !target.contains("://") && !target.starts_with(OF_THE_HOST);
            for target in targets.filter(is_file) {
                looked_at += 1;
                if !leads_somewhere(target, &document) {
                    lost.push(format!("{}: {target}", document.display()));
                }
            }
        }
    }
    assert!(looked_at > 400, "only {looked_at} links were found");
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

fn leads_somewhere(target: &str, document: &Path) -> bool {
    let (target, heading) = match target.split_once('#') {
        Some((target, heading)) => (target, Some(heading)),
        None => (target, None),
    };
    let folder = document.parent().expect("a folder around it");
    let file = if target.is_empty() {
        document.to_owned()
    } else {
        folder.join(target)
    };
    match heading {
        Some(heading) => has_heading(&file, heading),
        None => file.exists(),
    }
}

fn has_heading(document: &Path, heading: &str) -> bool {
    let text = std::fs::read_to_string(document).unwrap_or_default();
    let text = without_code(&text);
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    headings.any(|line| anchor(line) == heading)
}

/// The anchor of a heading, as rustdoc and code hosts derive it.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    kept.collect()
}

/// rustdoc resolves the pages, but not their headings.
#[test]
fn links_from_the_crate_to_a_heading_of_the_guide_lead_there() {
    let mut sources = Vec::new();
    for package in ["advisory-runtime", "advisory-derive", "cargo-advisory"] {
        let folder = root().join(package).join("src");
        collect(&folder, &folder, &mut sources);
    }
    let mut looked_at = 0;
    for (name, text) in &sources {
        for rest in text.split("guide::").skip(1) {
            let target = rest
                .split([')', ']', '`', ' ', '\n'])
                .next()
                .unwrap_or_default();
            if let Some((page, heading)) = target.split_once('#') {
                let page = root().join(GUIDE).join(page.replace('_', "-") + ".md");
                assert!(has_heading(&page, heading), "{name}: {target}");
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 1, "only {looked_at} links were found");
}
