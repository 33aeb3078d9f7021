//! The script of the GitHub action: what it checks, compares and comments, with a `gh` that writes
//! down its calls.
#![cfg(unix)]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use advisory_pattern::Record;

use crate::programs::{assert_has, assert_lacks, assert_starts, program_of, scratch, site};

/// Prints the id of an earlier comment, if there is one, and keeps its arguments and each body that
/// it sends.
const GH: &str = r#"#!/usr/bin/env bash
printf '%s\n' "$*" >>"$GH_LOG"
if [[ -n ${GH_FAILS:-} ]]; then echo 'Resource not accessible by integration' >&2; exit 1; fi
for word; do
    case $word in
        body=@*) cp "${word#body=@}" "$GH_LOG.body" ;;
        --jq) if [[ -e $GH_LOG.body ]]; then echo 41; fi ;;
    esac
done
"#;

struct Repository {
    root: PathBuf,
    base: String,
    program: String,
}

fn git(root: &Path, words: &[&str]) -> String {
    let identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
    let output = Command::new("git")
        .args(identity)
        .args(words)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with these locks in the document of its base, and others in the program.
fn repository(name: &str, base: &[Record], head: &[Record]) -> Repository {
    let root = PathBuf::from(scratch(name));
    if root.exists() {
        fs::remove_dir_all(&root).unwrap();
    }
    fs::create_dir_all(root.join("bin")).unwrap();
    // The program comes from a file, so the workspace is empty.
    fs::write(root.join("Cargo.toml"), "[workspace]\n").unwrap();
    let gh = root.join("bin/gh");
    fs::write(&gh, GH).unwrap();
    fs::set_permissions(&gh, fs::Permissions::from_mode(0o755)).unwrap();
    git(&root, &["init", "--quiet"]);
    let repository = Repository {
        base: String::new(),
        program: program_of(&format!("{name}.rmeta"), base),
        root,
    };
    repository.dump();
    git(&repository.root, &["add", "locks.md"]);
    git(
        &repository.root,
        &["commit", "--quiet", "--message", "base"],
    );
    let base = git(&repository.root, &["rev-parse", "HEAD"]);
    program_of(&format!("{name}.rmeta"), head);
    Repository { base, ..repository }
}

impl Repository {
    /// Writes the document of the program as it is.
    fn dump(&self) {
        let output = Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
            .args(["dump", "--format=markdown", "-o", "locks.md", "--artifact"])
            .arg(&self.program)
            .current_dir(&self.root)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn review(&self, variables: &[(&str, &str)]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/review-locks");
        let ours = Path::new(env!("CARGO_BIN_EXE_cargo-advisory"));
        let programs = [self.root.join("bin"), ours.parent().unwrap().to_owned()];
        let path = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&path)));
        Command::new("bash")
            .arg(script)
            .current_dir(&self.root)
            .env("PATH", path.unwrap())
            .env("REGISTRY", "locks.md")
            .env("SELECTION", format!("--artifact {}", self.program))
            .env("ARGUMENTS", "")
            .env("COMMENT", "true")
            .env("BASE", &self.base)
            .env("PULL_REQUEST", "7")
            .env("GITHUB_REPOSITORY", "shop/server")
            .env("GITHUB_STEP_SUMMARY", self.root.join("summary.md"))
            .env("GH_LOG", self.root.join("gh"))
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }

    /// The content of a file that a run may have written.
    fn written(&self, file: &str) -> String {
        fs::read_to_string(self.root.join(file)).unwrap_or_default()
    }
}

fn lock(function: &str, line: u32, pattern: &str) -> Record {
    let key = format!("pattern {pattern}");
    site("shop", function, line, &[pattern], &[&key])
}

#[test]
fn a_pull_request_gets_one_comment_with_the_difference() {
    let base = [lock("book", 7, "slot:<day>"), lock("pay", 9, "pay:<id>")];
    let head = [
        lock("book", 70, "slot:<day>"),
        lock("pay", 9, "payment:<id>"),
    ];
    let repository = repository("action-comment", &base, &head);
    repository.dump();
    let output = repository.review(&[]);
    assert!(output.status.success(), "{output:?}");
    let body = repository.written("gh.body");
    assert_has(&body, "\n-| `pay:<id>`");
    assert_has(&body, "\n+| `payment:<id>`");
    // Only the line of this lock has moved.
    assert_lacks(&body, "slot:<day>");
    assert_eq!(repository.written("summary.md"), body);
    let calls = repository.written("gh");
    let post = "--method POST repos/shop/server/issues/7/comments";
    assert_has(&calls, post);

    let again = repository.review(&[]);
    assert!(again.status.success(), "{again:?}");
    let calls = repository.written("gh");
    assert_eq!(calls.matches(post).count(), 1, "{calls}");
    let patch = "--method PATCH repos/shop/server/issues/comments/41";
    assert_has(&calls, patch);
}

#[test]
fn a_finding_fails_the_run_after_the_comment() {
    let [base, head] = ["slot:<day>", "seat:<day>"].map(|key| [lock("book", 7, key)]);
    let repository = repository("action-drift", &base, &head);
    let output = repository.review(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_starts(&said, "::error file=locks.md,");
    let body = repository.written("gh.body");
    assert_has(&body, "\n+| `seat:<day>`");
    assert_has(&body, "The check has findings");
}

#[test]
fn a_forks_difference_is_on_the_page_of_the_run() {
    let [base, head] = ["slot:<day>", "seat:<day>"].map(|key| [lock("book", 7, key)]);
    let repository = repository("action-fork", &base, &head);
    repository.dump();
    let output = repository.review(&[("GH_FAILS", "yes")]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_has(&said, "::notice title=cargo advisory::no comment");
    let summary = repository.written("summary.md");
    assert_has(&summary, "\n+| `seat:<day>`");
}

#[test]
fn no_comment_is_begun_without_a_difference_or_a_base() {
    let locks = [lock("book", 7, "slot:<day>")];
    let repository = repository("action-same", &locks, &locks);
    for variables in [&[][..], &[("BASE", "")], &[("COMMENT", "false")]] {
        let output = repository.review(variables);
        assert!(output.status.success(), "{variables:?}: {output:?}");
    }
    let calls = repository.written("gh");
    assert_lacks(&calls, "--method");
    // An earlier comment is not left with a difference that is gone.
    fs::write(repository.root.join("gh.body"), "").unwrap();
    assert!(repository.review(&[]).status.success());
    let body = repository.written("gh.body");
    assert_has(&body, "leaves the registry as it is");
}

#[test]
fn a_registry_that_the_base_lacks_is_new_as_a_whole() {
    let locks = [lock("book", 7, "slot:<day>")];
    let repository = repository("action-new", &locks, &locks);
    fs::rename(
        repository.root.join("locks.md"),
        repository.root.join("new.md"),
    )
    .unwrap();
    let output = repository.review(&[("REGISTRY", "new.md")]);
    assert!(output.status.success(), "{output:?}");
    let body = repository.written("gh.body");
    assert_has(&body, "\n+| `slot:<day>`");
}

/// No shell runs a text that a pull request can choose.
#[test]
fn words_of_inputs_are_not_evaluated() {
    let locks = [lock("book", 7, "slot:<day>")];
    let repository = repository("action-words", &locks, &locks);
    let artifact = format!("--artifact {}", repository.program);
    let mut selection = artifact.clone();
    write!(
        selection,
        " --artifact $(touch${{IFS}}evaluated) * ;touch evaluated"
    )
    .unwrap();
    let output = repository.review(&[("SELECTION", &selection)]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!repository.root.join("evaluated").exists());
}
