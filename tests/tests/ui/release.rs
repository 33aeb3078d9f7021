//! A release's version, dates and addresses: they agree on every page, and
//! `scripts/ready-to-release` refuses one where they do not.

use crate::pages::read;
use crate::workspace::{cargo, root};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The value of the first line of the workspace's manifest that sets this field.
fn field(name: &str) -> String {
    let manifest = read(&root().join("Cargo.toml"));
    let start = format!("{name} = \"");
    let line = manifest.lines().find_map(|line| line.strip_prefix(&start));
    let value = line.and_then(|rest| rest.strip_suffix('"'));
    value.expect(name).to_owned()
}

/// What the script prints as errors about these files; nothing if it accepts them.
fn refused(files: &Path) -> String {
    let script = files.join("scripts/ready-to-release");
    let output = Command::new("bash").arg(script).output().expect("bash");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}

/// Copies the files that the script reads, as the commit of a release has them.
fn ready(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an old copy");
    }
    let mut files = vec!["Cargo.toml", "CHANGELOG.md", "scripts/ready-to-release"];
    files.extend(["README.md", "advisory-runtime/README.md", "docs/alerts.md"]);
    files.extend([
        "advisory-runtime/docs/README.md",
        "cargo-advisory/README.md",
    ]);
    for file in files {
        let copy = folder.join(file);
        fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
        let text = read(&root().join(file))
            .replace(&field("repository"), "https://code.example/advisory")
            .replace("- unreleased\n", "- 2026-01-31\n");
        let text: String = text
            .split_inclusive('\n')
            .filter(|line| !line.contains("ntil the crates are published"))
            .map(|line| line.replace("# before it is published", "#"))
            .collect();
        let is_script = file.starts_with("scripts/");
        let text = if is_script {
            read(&root().join(file))
        } else {
            text
        };
        fs::write(copy, text).expect("a copy");
    }
    folder
}

/// Changes one of the files, and says what the script finds.
fn refused_with(name: &str, file: &str, before: &str, after: &str) -> String {
    let folder = ready(name);
    let path = folder.join(file);
    let text = read(&path);
    assert!(text.contains(before), "{file}: {before}");
    fs::write(path, text.replacen(before, after, 1)).expect("a copy");
    refused(&folder)
}

#[test]
fn a_release_needs_its_address_its_date_and_one_version() {
    assert_eq!(refused(&ready("release-ready")), "");

    let address = "https://code.example/advisory";
    let placeholder = "https://repository.invalid/advisory";
    let said = refused_with("release-address", "Cargo.toml", address, placeholder);
    assert!(said.contains("set `repository`"), "{said}");

    let said = refused_with("release-date", "CHANGELOG.md", "2026-01-31", "unreleased");
    assert!(said.contains("CHANGELOG.md: the first heading"), "{said}");

    let version = field("version");
    let pin = format!("version = \"={version}\"");
    let said = refused_with("release-pin", "Cargo.toml", &pin, "version = \"=0.0.9\"");
    assert!(said.contains("expected version"), "{said}");

    let page = "docs/alerts.md";
    let said = refused_with("release-page", page, "{ version = \"", "{ version = \"9.");
    assert!(said.contains(page), "{said}");

    let note = "cargo install --locked cargo-advisory";
    let said = refused_with(
        "release-note",
        "cargo-advisory/README.md",
        note,
        "Before it is published",
    );
    assert!(said.contains("before the first release"), "{said}");
}

#[test]
fn the_changelog_begins_with_this_version() {
    let changelog = read(&root().join("CHANGELOG.md"));
    let heading = changelog.lines().find(|line| line.starts_with("## "));
    let start = format!("## {} - ", field("version"));
    let date = heading.and_then(|heading| heading.strip_prefix(&start));
    let date = date.unwrap_or_else(|| panic!("{heading:?} does not begin with `{start}`"));
    let is_day = date.len() == 10 && date.split('-').all(|part| part.parse::<u16>().is_ok());
    assert!(date == "unreleased" || is_day, "{date}");
}

/// A user of the first release has none before it.
#[test]
fn the_changelog_has_an_entry_for_each_release_alone() {
    let changelog = read(&root().join("CHANGELOG.md"));
    for word in [
        "earlier clone",
        "this repository before",
        "programs from before",
    ] {
        assert!(!changelog.contains(word), "{word}");
    }
    let long: Vec<&str> = changelog
        .lines()
        .filter(|line| line.chars().count() > 100)
        .collect();
    assert!(
        long.iter().all(|line| line.contains("]: https://")),
        "{long:?}"
    );
    assert!(changelog.contains("\n### Keys\n"));
}

#[test]
fn the_action_is_shown_at_the_tag_of_this_version() {
    let page = read(&root().join("cargo-advisory/docs/registry.md"));
    let shown = page.split("uses: OWNER/REPOSITORY@").nth(1);
    let tag = shown.and_then(|rest| rest.split_whitespace().next());
    assert_eq!(tag, Some(&*format!("v{}", field("version"))));
}

#[test]
fn only_the_manifest_names_the_repository() {
    let address = field("repository");
    let (_, place) = address.split_once("://").expect("a protocol");
    let output = Command::new("git")
        .args(["grep", "--files-with-matches", "--fixed-strings", place])
        .current_dir(root())
        .output();
    // A copy without git is not compared.
    let Ok(output) = output else { return };
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found: Vec<_> = found.lines().collect();
    found.retain(|file| *file != "tests/tests/ui/release.rs");
    assert!(found.is_empty() || found == ["Cargo.toml"], "{found:?}");
    let metadata = cargo(&["metadata", "--format-version=1", "--no-deps", "--locked"]);
    assert_eq!(
        metadata
            .matches(&format!("\"repository\":\"{address}\""))
            .count(),
        4
    );
}
