//! The program with all mutants: a copy of the project whose package is rewritten until it compiles.

use crate::list::Mutant;
use crate::rewrite::{Refused, Rewriter};
use crate::site::{Site, sites};
use crate::{Failure, print, stdout_of};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A compiled test program.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// Where cargo runs it.
    pub(crate) folder: PathBuf,
}

/// The copy, and what it contains.
pub(crate) struct Tree<'a> {
    pub(crate) folder: PathBuf,
    /// The folder of what is compiled.
    pub(crate) target: PathBuf,
    root: &'a Path,
    package: &'a str,
    mutants: &'a [Mutant],
    code: BTreeMap<String, (String, Vec<Site>)>,
    /// The files in which `crate` begins.
    crate_roots: BTreeSet<PathBuf>,
    refused: Refused,
    /// Where the refused are noted, so that they need not be found out again.
    notes: PathBuf,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(
        root: &'a Path,
        folder: PathBuf,
        target: PathBuf,
        package: &'a str,
        mutants: &'a [Mutant],
    ) -> Result<Self, Failure> {
        let mut by_file = BTreeMap::<_, Vec<_>>::new();
        for (index, mutant) in mutants.iter().enumerate() {
            by_file
                .entry(&mutant.file)
                .or_default()
                .push((index + 1, mutant));
        }
        let mut code = BTreeMap::new();
        for (file, here) in by_file {
            let text = fs::read_to_string(root.join(file))?;
            let sites = sites(&text, &here).map_err(|error| format!("{file}: {error}"))?;
            code.insert(file.clone(), (text, sites));
        }
        let crate_roots = crate_roots(root, package)?;
        let notes = folder.with_extension("refused");
        let refused = read(&notes, mutants);
        Ok(Self {
            folder,
            target,
            root,
            package,
            mutants,
            code,
            crate_roots,
            refused,
            notes,
        })
    }

    /// The mutants that can be switched.
    pub(crate) fn switchable(&self) -> BTreeSet<usize> {
        let sites = self.code.values().flat_map(|(_, sites)| sites);
        let sites = sites.filter(|site| !self.refused.is_in_const(site));
        let mutants = sites.flat_map(|site| &site.mutants);
        let mutants = mutants.filter(|number| !self.refused.mutants.contains(number));
        mutants.copied().collect()
    }

    /// Those that the compiler refused.
    pub(crate) fn refused(&self) -> &HashSet<usize> {
        &self.refused.mutants
    }

    /// Writes every file that differs from what is there, so that cargo compiles no more than it must.
    fn write(&self) -> Result<(), Failure> {
        let files = stdout_of(
            Command::new("git")
                .args(["ls-files", "-z"])
                .current_dir(self.root),
        )?;
        for file in files.split_terminator('\0') {
            let (from, to) = (self.root.join(file), self.folder.join(file));
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            let is_root = self.crate_roots.contains(&from);
            let mut text = match self.code.get(file) {
                Some((code, sites)) => {
                    let (mutants, refused) = (self.mutants, &self.refused);
                    Rewriter {
                        code,
                        sites,
                        mutants,
                        refused,
                    }
                    .file()
                    .into_bytes()
                }
                None => fs::read(&from)?,
            };
            if Path::new(file) == Path::new(self.package).join("Cargo.toml") {
                // A test that nothing warns of is not about the rewritten code.
                let manifest = String::from_utf8(text)?;
                let quiet = "[lints.rust]\nwarnings = \"allow\"";
                text = manifest
                    .replace("[lints]\nworkspace = true", quiet)
                    .into_bytes();
            }
            if is_root {
                text.extend(include_bytes!("switch.rs"));
            }
            if fs::read(&to).ok().as_ref() != Some(&text) {
                fs::copy(&from, &to)?;
                fs::write(to, text)?;
            }
        }
        Ok(())
    }

    fn note(&self) -> Result<(), Failure> {
        let const_fns = self
            .refused
            .const_fns
            .iter()
            .map(|name| format!("const {name}\n"));
        let names = self
            .refused
            .mutants
            .iter()
            .map(|number| self.mutants[number - 1].name.clone() + "\n");
        Ok(fs::write(
            &self.notes,
            const_fns.chain(names).collect::<String>(),
        )?)
    }

    /// Compiles the tests, without what the compiler refuses.
    pub(crate) fn build(&mut self, tests: &[String]) -> Result<Vec<Program>, Failure> {
        loop {
            self.write()?;
            let mut programs = Vec::new();
            if self.compile(tests, &mut programs)? {
                return Ok(programs);
            }
            self.note()?;
            let (left, const_fns) = (self.switchable().len(), self.refused.const_fns.len());
            print(&format!(
                "{left} mutants can be switched, {const_fns} functions stay `const`"
            ));
        }
    }

    /// Compiles each choice of tests, and says whether all of it did. What did not is refused from then on.
    fn compile(&mut self, tests: &[String], programs: &mut Vec<Program>) -> Result<bool, Failure> {
        for choice in tests {
            let (package, target) = choice.split_once(':').unwrap_or((choice, ""));
            let mut cargo = self.cargo();
            cargo.args(["test", "--no-run"]).args([
                "--locked",
                "--message-format=json",
                "-p",
                package,
            ]);
            match target {
                "" => cargo.arg("--tests"),
                "lib" => cargo.arg("--lib"),
                "bins" => cargo.arg("--bins"),
                target => cargo.args(["--test", target]),
            };
            let output = cargo.stderr(Stdio::inherit()).output()?;
            let messages = String::from_utf8(output.stdout)?;
            let (mut is_news, mut errors) = (false, Vec::new());
            for message in messages
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            {
                if message["message"]["level"] == "error" {
                    errors.extend(message["message"]["rendered"].as_str().map(str::to_owned));
                    is_news |= self.refuse(&message["message"])?;
                }
                if let Some(path) = message["executable"].as_str()
                    && message["profile"]["test"] == true
                {
                    let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
                    let folder = manifest.parent().unwrap_or(manifest).to_owned();
                    programs.push(Program {
                        path: path.into(),
                        folder,
                    });
                }
            }
            if is_news {
                return Ok(false);
            }
            if !output.status.success() {
                return Err(format!(
                    "the tests {choice} do not compile, and not because of a mutant: {}",
                    errors.join("\n")
                )
                .into());
            }
        }
        Ok(true)
    }

    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// Refuses the mutants that an error is about, and says whether there were any.
    fn refuse(&mut self, error: &Value) -> Result<bool, Failure> {
        if error["code"]["code"] == "E0015" {
            let text = error["message"].as_str().unwrap_or_default();
            let path = text.split('`').nth(1).unwrap_or_default();
            let path = without_generics(path);
            let name = path.rsplit("::").find(|name| !name.is_empty());
            let name = name.unwrap_or_default().to_owned();
            return Ok(self.refused.const_fns.insert(name));
        }
        let children = error["children"].as_array().into_iter().flatten();
        let spans = std::iter::once(error)
            .chain(children)
            .filter_map(|part| part["spans"].as_array());
        let mut about = Vec::new();
        for span in spans.flatten() {
            let file = span["file_name"].as_str().unwrap_or_default();
            if self.code.contains_key(file) {
                let text = fs::read_to_string(self.folder.join(file))?;
                let line = usize::try_from(span["line_start"].as_u64().unwrap_or(1))?;
                about.extend(marks(&text, line));
            }
        }
        // The line of one mutant says more than a line of several, and that more than one that is only behind it.
        let best = about
            .iter()
            .min_by_key(|(distance, numbers)| (*distance > 0, numbers.len(), *distance));
        let numbers: Vec<usize> = best.map(|(_, numbers)| numbers.clone()).unwrap_or_default();
        Ok(numbers.iter().fold(false, |is_news, &number| {
            self.refused.mutants.insert(number) || is_news
        }))
    }
}

/// What was noted. Names of mutants that no longer exist are skipped.
fn read(notes: &Path, mutants: &[Mutant]) -> Refused {
    let notes = fs::read_to_string(notes).unwrap_or_default();
    let names: HashSet<&str> = notes.lines().collect();
    let is_noted = |(_, mutant): &(usize, &Mutant)| names.contains(mutant.name.as_str());
    let numbers = (1..).zip(mutants).filter(is_noted);
    Refused {
        mutants: numbers.map(|(number, _)| number).collect(),
        const_fns: names
            .iter()
            .filter_map(|name| name.strip_prefix("const "))
            .map(str::to_owned)
            .collect(),
    }
}

/// The numbers at the end of a line, or of the last line before it that has any, and how many lines that is away.
fn marks(text: &str, line: usize) -> Option<(usize, Vec<usize>)> {
    let lines: Vec<&str> = text.lines().take(line).collect();
    lines.iter().rev().enumerate().find_map(|(distance, line)| {
        let (_, numbers) = line.rsplit_once("//@")?;
        let numbers = numbers.split(',').map(str::parse).collect::<Result<_, _>>();
        Some((distance, numbers.ok()?))
    })
}

fn without_generics(path: &str) -> String {
    let mut depth = 0;
    let outside = path.chars().filter(|letter| {
        depth += i32::from(*letter == '<');
        let is_outside = depth == 0;
        depth -= i32::from(*letter == '>');
        is_outside
    });
    outside.collect()
}

fn crate_roots(root: &Path, package: &str) -> Result<BTreeSet<PathBuf>, Failure> {
    let words = ["metadata", "--no-deps", "--format-version=1", "--locked"];
    let metadata = stdout_of(Command::new("cargo").args(words).current_dir(root))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|found| found["name"] == package)
        .filter_map(|found| found["targets"].as_array());
    let own = targets.flatten().filter(|target| {
        let kinds = target["kind"].as_array().into_iter().flatten();
        kinds
            .clone()
            .any(|kind| kind == "lib" || kind == "proc-macro" || kind == "bin")
    });
    Ok(own
        .filter_map(|target| target["src_path"].as_str().map(PathBuf::from))
        .collect())
}
