//! The artifacts and inventories that a subcommand reads: those that the user names, or what
//! `cargo build` makes.
//!
//! The flags are passed to `cargo build` unchanged. Flags that are not listed here go after `--`.
//! Cargo itself lists the files, including those that are up to date, so nothing is guessed from
//! directories.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{self, Stdio};

use advisory_pattern::Record;
use advisory_runtime::monitor::Names;
use anstream::ColorChoice;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;

use crate::failure::{Failure, Result, bail};
use crate::inventory::Inventory;
use crate::{artifact, json};

/// The flags of `cargo build`: the name, the letter, the name of the value, and the help.
const FLAGS: [(&str, &str, &str, &str); 25] = [
    ("package", "p", "SPEC", "Package to build"),
    ("workspace", "", "", "All packages of the workspace"),
    ("exclude", "", "SPEC", "Package to leave out"),
    ("lib", "", "", "Only the library"),
    ("bins", "", "", "All programs"),
    ("bin", "", "NAME", "Only this program"),
    ("examples", "", "", "All examples"),
    ("example", "", "NAME", "Only this example"),
    ("tests", "", "", "All test programs"),
    ("test", "", "NAME", "Only this test program"),
    ("all-targets", "", "", "All targets"),
    ("features", "F", "FEATURES", "Features to enable"),
    ("all-features", "", "", "All features"),
    (
        "no-default-features",
        "",
        "",
        "Without the default features",
    ),
    ("release", "r", "", "With the release profile"),
    ("profile", "", "NAME", "With this profile"),
    ("target", "", "TRIPLE", "For this target"),
    ("target-dir", "", "DIRECTORY", "Where artifacts go"),
    ("manifest-path", "", "PATH", "Path to Cargo.toml"),
    ("jobs", "j", "N", "Parallel jobs"),
    ("config", "", "KEY=VALUE", "Configuration value"),
    ("locked", "", "", "Cargo.lock must not change"),
    ("offline", "", "", "Without the network"),
    ("frozen", "", "", "`--locked` and `--offline`"),
    ("quiet", "q", "", "Without cargo's own messages"),
];

/// More flags, after `--`.
const REST: &str = "rest";

pub(crate) struct Selection(Vec<String>);

impl Selection {
    /// Builds, with cargo's messages on the standard error. Returns the artifacts that can contain
    /// lock sites.
    pub(crate) fn build(&self) -> Result<Vec<PathBuf>> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let color = match ColorChoice::global() {
            ColorChoice::Always | ColorChoice::AlwaysAnsi => "always",
            ColorChoice::Never => "never",
            ColorChoice::Auto => "auto",
        };
        let output = process::Command::new(cargo)
            .args(["build", "--message-format=json-render-diagnostics"])
            .args(["--color", color])
            .args(&self.0)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Failure::Input(format!("cannot run cargo: {error}")))?;
        if !output.status.success() {
            let code = output.status.code().map(u8::try_from);
            return Err(Failure::Cargo(code.and_then(Result::ok).unwrap_or(101)));
        }
        let messages = output.stdout.split(|byte| *byte == b'\n');
        let messages = messages.filter_map(|line| serde_json::from_slice(line).ok());
        let mut files: Vec<PathBuf> = messages
            .flat_map(|message: Value| artifacts(&message))
            .collect();
        files.sort();
        files.dedup();
        if files.is_empty() {
            bail!("`cargo build` makes no program or library for this selection");
        }
        Ok(files)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.iter().any(|flag| flag == "--quiet")
    }
}

impl Args for Selection {
    fn augment_args(command: Command) -> Command {
        let flags = FLAGS.map(|(name, letter, value, help)| {
            let arg = Arg::new(name).long(name).help(help);
            let arg = match value {
                "" => arg.action(ArgAction::SetTrue),
                value => arg.value_name(value).action(ArgAction::Append),
            };
            arg.short(letter.chars().next())
                .help_heading("Selection (as for `cargo build`)")
        });
        let rest = Arg::new(REST)
            .value_name("FLAGS")
            .last(true)
            .num_args(0..)
            .allow_hyphen_values(true)
            .help("More flags for `cargo build`");
        command.args(flags).arg(rest)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Selection {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Vec::new();
        for (name, _, value, _) in FLAGS {
            if value.is_empty() {
                flags.extend(matches.get_flag(name).then(|| format!("--{name}")));
            } else {
                let values = matches.get_many::<String>(name).into_iter().flatten();
                flags.extend(values.map(|value| format!("--{name}={value}")));
            }
        }
        let rest = matches.get_many::<String>(REST).into_iter().flatten();
        flags.extend(rest.cloned());
        Ok(Self(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

// The artifacts that are named, or else the selection to build.
#[derive(Args)]
pub(crate) struct Artifacts {
    /// Reads a program, library or archive instead of building
    #[arg(long, value_name = "FILE", conflicts_with_all = FLAGS.map(|flag| flag.0).into_iter().chain([REST]))]
    artifact: Vec<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

impl Artifacts {
    /// Reads them. If `has_records`, an artifact that is named and has no lock sites is refused,
    /// because the answer depends on them.
    pub(crate) fn inventory(&self, has_records: bool) -> Result<Inventory> {
        if self.artifact.is_empty() {
            return artifact::read(&self.selection.build()?, false);
        }
        artifact::read(&self.artifact, has_records)
    }

    pub(crate) fn are_named(&self) -> bool {
        !self.artifact.is_empty()
    }

    pub(crate) fn manifest_path(&self) -> Option<&str> {
        let mut flags = self.selection.0.iter();
        flags.find_map(|flag| flag.strip_prefix("--manifest-path="))
    }
}

// The files with the lock sites.
#[derive(Args)]
pub(crate) struct NameSources {
    /// A program that has the lock sites with the names
    #[arg(long, value_name = "FILE", global = true)]
    artifact: Vec<PathBuf>,
    /// A dumped inventory (JSON) that has the lock sites with the names
    #[arg(long, value_name = "FILE", global = true)]
    inventory: Vec<PathBuf>,
}

impl NameSources {
    pub(crate) fn are_named(&self) -> bool {
        !self.artifact.is_empty() || !self.inventory.is_empty()
    }

    pub(crate) fn names(&self) -> Result<Names> {
        names_of(self.inventory()?.sites)
    }

    pub(crate) fn inventory(&self) -> Result<Inventory> {
        Ok(artifact::read(&self.artifact, true)?.and(json::read_files(&self.inventory)?))
    }
}

pub(crate) fn names_of(sites: Vec<Record>) -> Result<Names> {
    Names::of(sites).map_err(|error| Failure::Input(format!("the inventory: {error}")))
}

fn artifacts(message: &Value) -> Vec<PathBuf> {
    let mut kinds = message["target"]["kind"].as_array().into_iter().flatten();
    // These run during the build, and are not part of the program.
    let is_tool = kinds.any(|kind| kind == "proc-macro" || kind == "custom-build");
    if message["reason"] != "compiler-artifact" || is_tool {
        return Vec::new();
    }
    let files = message["filenames"].as_array().into_iter().flatten();
    let files = files.chain(Some(&message["executable"]));
    // Metadata, debug information and import libraries have no other lock sites than their
    // artifact.
    let others = ["rmeta", "d", "pdb", "dwp", "dSYM", "exp"].map(OsStr::new);
    let files = files.filter_map(Value::as_str).map(PathBuf::from);
    files
        .filter(|file| file.extension().is_none_or(|it| !others.contains(&it)))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::Artifacts;

    #[test]
    fn the_manifest_and_quiet_are_found_among_cargos_flags() {
        for (words, manifest, is_quiet) in [
            (&["x", "-q"][..], None, true),
            (&["x", "--manifest-path", "a"], Some("a"), false),
        ] {
            let command = Artifacts::augment_args(Command::new("x"));
            let matches = command.get_matches_from(words);
            let artifacts = Artifacts::from_arg_matches(&matches).unwrap();
            assert_eq!(artifacts.manifest_path(), manifest, "{words:?}");
            assert_eq!(artifacts.selection.is_quiet(), is_quiet, "{words:?}");
        }
    }
}
