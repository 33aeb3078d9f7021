//! Findings in the forms of code hosts: each is at a line of the repository, and keeps its
//! fingerprint if the line moves.

use std::fs;
use std::path::{Path, PathBuf};

use advisory_pattern::Record;
use serde_json::Value;

use crate::programs::{Said, advisory_in, assert_has, assert_starts, program_of, scratch, site};

/// A repository with a workspace of two crates in one of its folders.
fn repository(name: &str) -> PathBuf {
    let root = PathBuf::from(scratch(name));
    if root.exists() {
        fs::remove_dir_all(&root).unwrap();
    }
    let workspace = root.join("server");
    for krate in ["shop", "ledger"] {
        let folder = workspace.join("crates").join(krate);
        fs::create_dir_all(folder.join("src")).unwrap();
        let manifest = format!("[package]\nname = \"{krate}\"\nversion = \"1.0.0\"\n");
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        fs::write(folder.join("src/lib.rs"), "").unwrap();
    }
    let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n";
    fs::write(workspace.join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(root.join(".git")).unwrap();
    workspace
}

fn number(krate: &str, file: &str, line: u32) -> Record {
    Record {
        file: file.to_owned(),
        ..site(krate, "close", line, &["7"], &["number 7"])
    }
}

/// Two crates that take one number.
fn colliding(line: u32) -> [Record; 2] {
    [
        number("ledger", "src/lib.rs", 5),
        number("shop", "src/end of day.rs", line),
    ]
}

fn check(workspace: &Path, program: &str, more: &[&str]) -> Said {
    let words = ["check", "--artifact", program];
    advisory_in(workspace, &[&words, more].concat())
}

fn sarif(workspace: &Path, program: &str, more: &[&str]) -> Value {
    let said = check(workspace, program, &[&["--format", "sarif"], more].concat()).exits(1);
    serde_json::from_str(&said.out).unwrap()
}

/// The path and the line of a location.
fn place(location: &Value) -> (&str, u64) {
    let physical = &location["physicalLocation"];
    assert_eq!(physical["artifactLocation"]["uriBaseId"], "%SRCROOT%");
    (
        physical["artifactLocation"]["uri"].as_str().unwrap(),
        physical["region"]["startLine"].as_u64().unwrap(),
    )
}

#[test]
fn sarif_has_both_places_below_the_repositorys_root() {
    let workspace = repository("sarif-places");
    let program = program_of("sarif-places.rmeta", &colliding(7));
    let log = sarif(&workspace, &program, &[]);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let result = &run["results"][0];
    assert_eq!(result["ruleId"], "collision");
    let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
    assert_eq!(run["tool"]["driver"]["rules"][index]["id"], "collision");
    assert_eq!(result["level"], "error");
    let here = place(&result["locations"][0]);
    assert_eq!(here, ("server/crates/shop/src/end%20of%20day.rs", 7));
    let there = &result["relatedLocations"][0];
    assert_eq!(place(there), ("server/crates/ledger/src/lib.rs", 5));
    let text = there["message"]["text"].as_str().unwrap();
    assert_has(&text, "is the other lock");
}

#[test]
fn a_fingerprint_survives_an_edit_above_the_lock() {
    let workspace = repository("sarif-moved");
    let before = program_of("sarif-before.rmeta", &colliding(7));
    let after = program_of("sarif-after.rmeta", &colliding(70));
    let fingerprint = |program: &str| {
        let log = sarif(&workspace, program, &[]);
        log["runs"][0]["results"][0]["partialFingerprints"].clone()
    };
    assert_eq!(fingerprint(&before), fingerprint(&after));
    assert!(fingerprint(&before).is_object());
}

#[test]
fn what_has_no_line_in_the_tree_is_at_the_manifest() {
    let workspace = repository("sarif-nowhere");
    let [ledger, _] = colliding(7);
    for (krate, file) in [
        ("shop", "$OUT_DIR/locks.rs"),
        ("shop", ""),
        ("a-dependency", "src/lib.rs"),
    ] {
        let other = number(krate, file, 3);
        let elsewhere = Record {
            krate: "another-dependency".to_owned(),
            ..ledger.clone()
        };
        let program = program_of("sarif-nowhere.rmeta", &[other, elsewhere]);
        let log = sarif(&workspace, &program, &[]);
        let result = &log["runs"][0]["results"][0];
        assert_eq!(place(&result["locations"][0]), ("server/Cargo.toml", 1));
        assert!(result["relatedLocations"].as_array().unwrap().is_empty());
    }
    // If only one of the two places has a line, the finding is there.
    let sites = [number("z", "src/z.rs", 2), number("shop", "src/lib.rs", 5)];
    let program = program_of("sarif-other.rmeta", &sites);
    let log = sarif(&workspace, &program, &[]);
    let result = &log["runs"][0]["results"][0];
    let there = place(&result["locations"][0]);
    assert_eq!(there, ("server/crates/shop/src/lib.rs", 5));
}

#[test]
fn a_line_of_an_earlier_release_is_not_one_of_this_tree() {
    let workspace = repository("sarif-released");
    let program = program_of("sarif-released.rmeta", &[number("shop", "src/lib.rs", 5)]);
    let old = Record {
        keys: vec!["number 8".to_owned()],
        written: vec!["8".to_owned()],
        ..number("shop", "src/lib.rs", 400)
    };
    let old = program_of("sarif-released-old.rmeta", &[old]);
    let words = [
        "dump",
        "--format=json",
        "-o",
        "released.json",
        "--artifact",
        &old,
    ];
    advisory_in(&workspace, &words).exits(0);
    let log = sarif(&workspace, &program, &["--against", "released.json"]);
    let result = &log["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "key-change");
    let here = place(&result["locations"][0]);
    assert_eq!(here, ("server/crates/shop/src/lib.rs", 5));
    let there = place(&result["relatedLocations"][0]);
    assert_eq!(there, ("server/released.json", 1));
}

#[test]
fn github_gets_a_command_for_each_finding() {
    let workspace = repository("github-commands");
    let program = program_of("github-commands.rmeta", &colliding(7));
    let said = check(&workspace, &program, &["--format", "github"]).exits(1);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 2, "{said:?}");
    let start = "::error file=server/crates/shop/src/end of day.rs,line=7,title=cargo advisory%3A collision::";
    assert_starts(&lines[0], start);
    assert_has(&lines[0], "%0Ahelp: ");
    assert_starts(&lines[1], "1 finding; 2 lock sites");
}

/// A line break in a text would end the command, and the rest of the text could be another one.
#[test]
fn a_text_of_the_program_is_no_command_of_its_own() {
    let workspace = repository("github-escapes");
    let document = "100%\r\n::add-mask::a\n";
    fs::write(workspace.join("a,b:c%.md"), document).unwrap();
    let program = program_of("github-escapes.rmeta", &[number("shop", "src/lib.rs", 5)]);
    let words = ["--registry", "a,b:c%.md", "--format", "github"];
    let said = check(&workspace, &program, &words).exits(1);
    let commands: Vec<_> = said.out.lines().filter(|l| l.starts_with("::")).collect();
    assert_eq!(commands.len(), 1, "{said:?}");
    let start = "::error file=server/a%2Cb%3Ac%25.md,line=1,title=cargo advisory%3A drift::";
    assert_starts(&commands[0], start);
    assert_has(&commands[0], "%0A- 100%25");
    assert!(!said.out.contains('\r'), "{said:?}");
}
