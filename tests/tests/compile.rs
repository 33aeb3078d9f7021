//! Colliding keys are an error of every command that compiles the crate, also after edits; crates
//! that are compiled separately are not compared.
//!
//! The crates are generated here, in one target directory that is kept, and use the parts of the
//! runtime that need no database.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A workspace of two crates, `ours` and `theirs`. Their packages have the workspace's name too,
/// since cargo distinguishes packages of one target directory only by their name and their path in
/// the workspace.
struct Workspace {
    name: &'static str,
    root: PathBuf,
}

const ACCOUNT: &str = "
    #[derive(advisory_runtime::LockKey)]
    #[lock_key(\"account:<id>\")]
    pub struct AccountLock { pub id: i64 }
";

/// Can be the same key as `ACCOUNT`.
const MEETS: &str = "
    pub fn key(id: i64) -> advisory_runtime::Key {
        advisory_runtime::lock_key!(\"account:<id: int>\")
    }
";

/// Never the same key.
const APART: &str = "
    pub fn key(id: i64) -> advisory_runtime::Key {
        advisory_runtime::lock_key!(\"invoice:<id: int>\")
    }
";

impl Workspace {
    fn new(name: &'static str, ours: &str, theirs: &str) -> Self {
        let root = target().join("compile").join(name);
        let workspace = Self { name, root };
        let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../advisory-runtime");
        workspace.write(
            "Cargo.toml",
            "[workspace]\nmembers = [\"ours\", \"theirs\"]\nresolver = \"3\"\n",
        );
        workspace.write("Cargo.lock", include_str!("../../Cargo.lock"));
        for (krate, source) in [("ours", ours), ("theirs", theirs)] {
            let manifest = format!(
                "[package]\nname = \"{name}-{krate}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
                 advisory-runtime = {{ path = '{}', default-features = false }}\n\n[features]\nslim = [\"advisory-runtime/slim-inventory\"]\n",
                runtime.display()
            );
            workspace.write(&format!("{krate}/Cargo.toml"), &manifest);
            workspace.write(&format!("{krate}/src/lib.rs"), source);
        }
        workspace
    }

    /// Adds a dependency to the crate `ours`.
    fn depend_on(&self, dependency: &str) {
        let manifest = self.root.join("ours/Cargo.toml");
        let text = std::fs::read_to_string(manifest).expect("it was written");
        let text = text.replace(
            "[dependencies]\n",
            &format!("[dependencies]\n{dependency}\n"),
        );
        self.write("ours/Cargo.toml", &text);
    }

    /// Writes a file if it differs, so that cargo sees no change where there is none.
    fn write(&self, file: &str, text: &str) {
        let file = self.root.join(file);
        if std::fs::read_to_string(&file).is_ok_and(|before| before == text) {
            return;
        }
        let folder = file.parent().expect("a file in a folder");
        std::fs::create_dir_all(folder).expect("the target folder is ours");
        std::fs::write(file, text).expect("the target folder is ours");
    }

    /// Runs cargo, and returns its errors; empty if it succeeds.
    fn cargo(&self, arguments: &[&str]) -> String {
        let package = format!("{}-ours", self.name);
        let named = |argument: &&str| match *argument {
            "ours" => package.clone(),
            other => other.to_owned(),
        };
        let output = Command::new(env!("CARGO"))
            .args(arguments.iter().map(named))
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", target().join("compile/target"))
            .env("CARGO_TERM_COLOR", "never")
            .env_remove("RUSTFLAGS")
            .output()
            .expect("cargo runs this test");
        if output.status.success() {
            return String::new();
        }
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        printed + &String::from_utf8_lossy(&output.stdout)
    }

    fn collides(&self, arguments: &[&str]) {
        let printed = self.cargo(arguments);
        let headline =
            "error: advisory lock keys can collide: `account:<id: int>` and `account:<id>`";
        assert!(printed.contains(headline), "{arguments:?}: {printed}");
        let place = "src/lib.rs:3:16 (struct `AccountLock`) is the other lock";
        assert!(printed.contains(place), "{arguments:?}: {printed}");
    }

    fn compiles(&self, arguments: &[&str]) {
        assert_eq!(self.cargo(arguments), "", "{arguments:?}");
    }
}

/// The folder that this test was built in.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.ancestors().nth(3).expect("the target folder");
    folder.join("tests")
}

#[test]
fn every_command_that_compiles_the_crate_finds_a_collision() {
    let workspace = Workspace::new("commands", &format!("{ACCOUNT}{MEETS}"), "");
    for arguments in [
        &["check", "-p", "ours"][..],
        &["build", "-p", "ours"],
        &["clippy", "-p", "ours"],
        &["test", "-p", "ours", "--no-run"],
        &["doc", "-p", "ours", "--no-deps"],
    ] {
        workspace.collides(arguments);
    }
}

/// Both back ends are off here. This is the only error, in a program that is otherwise correct.
#[test]
fn the_error_for_a_missing_back_end_names_its_feature() {
    let functions = "
        pub struct Connection;
        #[advisory_runtime::advisory_lock(key = \"account:<id>\", name = \"account\")]
        pub async fn wait(conn: &mut Connection, id: i64) -> Result<i64, ()> { let _ = conn; Ok(id) }
        #[advisory_runtime::advisory_lock(key = \"account:<id>\", name = \"account\")]
        pub fn block(conn: &mut Connection, id: i64) -> Result<i64, ()> { let _ = conn; Ok(id) }
        pub async fn both(conn: &mut Connection) -> Result<i64, ()> { Ok(block(conn, 7)? + wait(conn, 7).await?) }
    ";
    let workspace = Workspace::new("back-end", functions, "");
    let printed = workspace.cargo(&["check", "-p", "ours"]);
    for message in [
        "error: a lock on an `async fn` needs the feature `diesel-async` of `advisory-runtime`, which is on by default: remove \
         `default-features = false` in `Cargo.toml`, or write `features = [\"diesel-async\"]`\n --> ours/src/lib.rs:4:22\n",
        "error: a lock on a plain `fn` needs the feature `postgres` of `advisory-runtime`: write `features = [\"postgres\"]` in \
         `Cargo.toml`; for a connection of diesel-async write `async fn`\n --> ours/src/lib.rs:6:16\n",
        "due to 2 previous errors\n",
    ] {
        assert!(printed.contains(message), "{message}: {printed}");
    }
    assert!(!printed.contains("warning"), "{printed}");
}

#[test]
fn an_edit_brings_a_collision_and_takes_it_away() {
    let check = &["check", "-p", "ours"][..];
    let workspace = Workspace::new("edits", &format!("{ACCOUNT}pub mod other;"), "");
    for round in 0..2 {
        workspace.write("ours/src/other.rs", APART);
        workspace.compiles(check);
        workspace.write("ours/src/other.rs", &format!("// {round}\n{MEETS}"));
        workspace.collides(check);
        // The first site was removed, so nothing collides.
        workspace.write("ours/src/lib.rs", "pub mod other;");
        workspace.compiles(check);
        workspace.write("ours/src/lib.rs", &format!("{ACCOUNT}pub mod other;"));
        workspace.collides(check);
    }
}

#[test]
fn crates_of_a_workspace_are_compared_only_in_a_program() {
    let workspace = Workspace::new("crates", ACCOUNT, MEETS);
    workspace.compiles(&["check", "--workspace"]);
}

#[test]
fn code_left_out_does_not_collide_but_generic_code_does() {
    let hidden = format!("{ACCOUNT}#[cfg(any())]\npub mod never {{ {MEETS} }}");
    Workspace::new("cfg", &hidden, "").compiles(&["check", "-p", "ours"]);
    let generic = format!("{ACCOUNT}pub struct S<T>(pub T);\nimpl<T: Clone> S<T> {{ {MEETS} }}");
    Workspace::new("generic", &generic, "").collides(&["check", "-p", "ours"]);
}

/// Merged doctests are one crate made of many programs.
#[test]
fn doctests_do_not_collide_with_each_other() {
    let documented = "
        //! ```
        //! let id = 7;
        //! advisory_runtime::lock_key!(\"account:<id>\");
        //! ```
        //!
        //! ```
        //! let id = 8;
        //! advisory_runtime::lock_key!(\"account:<id>\");
        //! ```
    ";
    let workspace = Workspace::new("doctests", documented, "");
    workspace.compiles(&["test", "-p", "ours", "--doc"]);
}

/// The feature comes before all other advice, since the type has everything that a key needs.
#[test]
fn the_error_for_a_value_of_a_disabled_crate_names_its_feature() {
    let source = "
        pub fn key(id: uuid::Uuid) -> advisory_runtime::Key {
            advisory_runtime::lock_key!(\"account:<id: uuid>\")
        }
    ";
    let workspace = Workspace::new("features", source, "");
    workspace.depend_on("uuid = \"1\"");
    let printed = workspace.cargo(&["check", "-p", "ours"]);
    assert!(
        printed.contains("can't be part of an advisory lock key"),
        "{printed}"
    );
    let first = printed.split("= note: ").nth(1).unwrap_or_default();
    let wanted = "a type of `uuid`, `chrono`, `time` or `jiff` needs the feature of that name";
    assert!(first.starts_with(wanted), "{printed}");
}

#[test]
fn a_slim_inventory_has_keys_without_purposes_and_places() {
    let documented = ACCOUNT.replace("#[derive", "/// Moves money.\n#[derive");
    let workspace = Workspace::new("slim", &documented, "");
    let built = target().join("compile/target/debug/libslim_ours.rlib");
    for (arguments, purpose, file) in [
        (
            &["build", "-p", "ours"][..],
            Some("Moves money."),
            "src/lib.rs",
        ),
        (&["build", "-p", "ours", "--features", "slim"], None, ""),
    ] {
        workspace.compiles(arguments);
        let bytes = std::fs::read(&built).expect("what cargo has built");
        let records = advisory_pattern::Record::find_all(&bytes).expect("our own records");
        let [record] = records.as_slice() else {
            panic!("one site: {records:?}")
        };
        assert_eq!(record.keys, ["pattern account:<id: int>"]);
        assert_eq!(
            (record.purpose.as_deref(), record.file.as_str()),
            (purpose, file)
        );
    }
}
