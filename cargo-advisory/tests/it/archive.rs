//! The archive of a release is what `cargo binstall` looks for, with the pages and completions of
//! the program in it.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{assert_has, scratch};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A template of `[package.metadata.binstall]`, filled in.
fn binstall(field: &str) -> String {
    let manifest = include_str!("../../Cargo.toml");
    let (_, table) = manifest
        .split_once("[package.metadata.binstall]\n")
        .unwrap();
    let start = format!("{field} = \"");
    let line = table.lines().find_map(|line| line.strip_prefix(&start));
    let mut text = line
        .and_then(|line| line.strip_suffix('"'))
        .unwrap()
        .to_owned();
    for (word, value) in [
        ("repo", env!("CARGO_PKG_REPOSITORY")),
        ("name", env!("CARGO_PKG_NAME")),
        ("version", env!("CARGO_PKG_VERSION")),
        ("target", TARGET),
        ("bin", "cargo-advisory"),
        ("binary-ext", ""),
    ] {
        text = text.replace(&format!("{{ {word} }}"), value);
    }
    assert!(!text.contains('{'), "{text}");
    text
}

fn said(program: &str, words: &[&str], folder: &Path) -> String {
    let output = Command::new(program)
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{program} {words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_archive_is_where_binstall_looks_and_complete() {
    let target = PathBuf::from(scratch("archive"));
    let program = Path::new(env!("CARGO_BIN_EXE_cargo-advisory"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/archive");
    let output = Command::new("bash")
        .arg(script)
        .arg(TARGET)
        .arg(program.parent().unwrap())
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let written = String::from_utf8(output.stdout).unwrap();
    let archive = Path::new(written.trim());
    let name = archive.file_name().unwrap().to_str().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let repository = env!("CARGO_PKG_REPOSITORY");
    let release = format!("{repository}/releases/download/v{version}");
    assert_eq!(binstall("pkg-url"), format!("{release}/{name}"));
    assert_eq!(binstall("pkg-fmt"), "tgz");

    let list = said("tar", &["tzf", name], archive.parent().unwrap());
    let listed: BTreeSet<&str> = list.lines().filter(|file| !file.ends_with('/')).collect();
    assert!(listed.contains(&*binstall("bin-dir")), "{listed:#?}");
    let folder = name.strip_suffix(".tgz").unwrap();
    let pages = fs::read_dir(pages()).unwrap().map(|entry| {
        let name = entry.unwrap().file_name();
        format!("man/{}", name.to_str().unwrap())
    });
    let completions = ["bash", "elvish", "fish", "powershell"]
        .map(|shell| format!("completions/cargo-advisory.{shell}"));
    let others = [
        "cargo-advisory",
        "README.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "completions/_cargo-advisory",
    ]
    .map(str::to_owned);
    let expected: BTreeSet<String> = pages
        .chain(completions)
        .chain(others)
        .map(|file| format!("{folder}/{file}"))
        .collect();
    assert!(expected.len() > 20, "{expected:#?}");
    assert_eq!(listed, expected.iter().map(String::as_str).collect());

    // The digest is next to the archive.
    let digest =
        fs::read_to_string(format!("{written}.sha256", written = archive.display())).unwrap();
    let own = said("sha256sum", &[name], archive.parent().unwrap());
    assert_eq!(digest, own);

    let unpacked = target.join("unpacked");
    fs::create_dir_all(&unpacked).unwrap();
    said("tar", &["xzf", archive.to_str().unwrap()], &unpacked);
    let installed = unpacked.join(binstall("bin-dir"));
    let printed = said(installed.to_str().unwrap(), &["--version"], &unpacked);
    assert_has(&printed, version);
}

/// The manual, as the program writes it.
fn pages() -> PathBuf {
    let folder = PathBuf::from(scratch("archive-manual"));
    let words = ["manual", folder.to_str().unwrap()];
    said(env!("CARGO_BIN_EXE_cargo-advisory"), &words, Path::new("."));
    folder
}
