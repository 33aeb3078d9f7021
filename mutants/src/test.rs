//! The tests, each a process of its own: which mutants they reach, and whether they pass.

use crate::program::Program;
use crate::{Failure, stdout_of};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::spawn;
use std::time::{Duration, Instant};

/// Stands for the folder of a run, in the words of a test and in what it prints.
pub(crate) const SCRATCH: &str = "@scratch@";

pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) variables: Vec<(String, String)>,
    /// What it prints without a mutant, if that is what it tests.
    pub(crate) printed: Option<String>,
}

#[derive(PartialEq, Eq)]
pub(crate) enum Outcome {
    Passes,
    Fails,
    /// It was still running after its time.
    Hangs,
}

/// What was seen of a test without a mutant.
pub(crate) struct Baseline {
    pub(crate) passes: bool,
    pub(crate) time: Duration,
    pub(crate) reached: BTreeSet<usize>,
}

/// The tests of a test program.
pub(crate) fn tests(program: &Program) -> Result<Vec<Test>, Failure> {
    let mut command = Command::new(&program.path);
    command
        .args(["--list", "--format", "terse"])
        .env("LD_LIBRARY_PATH", libraries()?);
    let listed = stdout_of(command.current_dir(&program.folder))?;
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let path = program.path.display().to_string();
    let folder = program.folder.display().to_string();
    let variables = [
        ("LD_LIBRARY_PATH", libraries()?),
        ("CARGO_MANIFEST_DIR", folder),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let file = program
        .path
        .file_stem()
        .unwrap_or_default()
        .display()
        .to_string();
    let file = file
        .rsplit_once('-')
        .map_or(file.as_str(), |(file, _)| file);
    let test = |name: &str| Test {
        name: format!("{file} {name}"),
        words: [&path, "--exact", name].map(str::to_owned).to_vec(),
        folder: program.folder.clone(),
        variables: variables.to_vec(),
        printed: None,
    };
    Ok(names.map(test).collect())
}

/// Where the libraries of the compiler are: the tests of a procedural macro need them.
pub(crate) fn libraries() -> Result<String, Failure> {
    let folder = |what| stdout_of(Command::new("rustc").args(["--print", what]));
    let (target, root) = (folder("target-libdir")?, folder("sysroot")?);
    Ok(format!("{}:{}/lib", target.trim(), root.trim()))
}

impl Test {
    /// Runs it, without a mutant or with one; `reached` is where the mutants that it reaches are written.
    pub(crate) fn run(
        &self,
        mutant: usize,
        reached: Option<&Path>,
        limit: Duration,
        scratch: &Path,
    ) -> Result<(Outcome, String), Failure> {
        let printed = scratch.join("printed");
        let file = fs::File::create(&printed)?;
        let words = self
            .words
            .iter()
            .map(|word| word.replace(SCRATCH, &scratch.display().to_string()));
        // A mutant that allocates without end must not take the machine's memory.
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -v 8000000; exec \"$@\"", "sh"])
            .args(words);
        command
            .current_dir(&self.folder)
            .envs(self.variables.iter().cloned());
        command
            .env("MUTANT", mutant.to_string())
            .env("RUST_BACKTRACE", "0");
        if let Some(reached) = reached {
            command.env("MUTANTS_REACHED", reached);
        }
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0);
        let mut child = command.spawn()?;
        let group = format!("-{}", child.id());
        let (ends, ended) = mpsc::channel();
        let waiting = spawn(move || ends.send(child.wait()));
        let status = match ended.recv_timeout(limit) {
            Ok(status) => Some(status?),
            Err(_) => {
                Command::new("kill")
                    .args(["-KILL", "--", &group])
                    .status()?;
                None
            }
        };
        waiting
            .join()
            .map_err(|_| "the thread that waits for a test")?
            .ok();
        let printed = String::from_utf8_lossy(&fs::read(printed)?)
            .replace(&scratch.display().to_string(), SCRATCH);
        let outcome = match status {
            None => Outcome::Hangs,
            Some(status) if self.printed.is_none() && !status.success() => Outcome::Fails,
            Some(_)
                if self
                    .printed
                    .as_ref()
                    .is_some_and(|expected| *expected != printed) =>
            {
                Outcome::Fails
            }
            Some(_) => Outcome::Passes,
        };
        Ok((outcome, printed))
    }

    /// Runs it without a mutant: once to see what it reaches, and once to see how long it takes otherwise.
    pub(crate) fn baseline(&mut self, scratch: &Path) -> Result<Baseline, Failure> {
        let limit = Duration::from_secs(600);
        let file = scratch.join("reached");
        fs::write(&file, "")?;
        let is_compared = self.printed.take().is_some();
        let (_, printed) = self.run(0, Some(&file), limit, scratch)?;
        self.printed = is_compared.then_some(printed);
        let reached = fs::read_to_string(&file)?;
        let reached = reached
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        let started = Instant::now();
        let (outcome, _) = self.run(0, None, limit, scratch)?;
        Ok(Baseline {
            passes: outcome == Outcome::Passes,
            time: started.elapsed(),
            reached,
        })
    }
}
