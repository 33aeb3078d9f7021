//! Judges the tests of a package by mutants: the code with one expression changed, for which a test has to fail.
//!
//! Which mutants there are is for cargo-mutants to say, which builds each of them as a program of its own. This builds one program with
//! all of them, in which the variable `MUTANT` switches one on, and runs against each mutant only the tests that reach it.

mod compile;
mod judge;
mod list;
mod program;
mod rewrite;
mod site;
mod test;

use judge::Judge;
use lexopt::{Arg, ValueExt as _};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, thread};

pub(crate) type Failure = Box<dyn std::error::Error>;

const HELP: &str = "\
Judges the tests of a package by mutants.

Usage: scripts/mutants PACKAGE [flags]

  --file GLOB        judge only mutants of these files; can be repeated
  --test PACKAGE[:TEST]
                     these tests, instead of the package's own; TEST is `lib`, `bins` or the name of a
                     test program; can be repeated
  --compile PACKAGE:TEST:NAME
                     what this test compiles, each of which has to print the same: for macros
  --most N           run at most N of the tests that reach a mutant (default 40)
  --jobs N           N tests at once (default: the number of processors)
  --shard K/N        only each N-th mutant, from the K-th on, which counts from 0
  --again            once more what no test found
  --list             only the table and the survivors

A run can be stopped, and goes on where it was. The results are in target/mutants/PACKAGE.";

struct Flags {
    package: String,
    files: Vec<String>,
    tests: Vec<String>,
    /// Test programs, and which of their tests.
    compiled: Vec<(String, String)>,
    most: usize,
    jobs: usize,
    shard: (usize, usize),
    again: bool,
    list: bool,
}

fn flags() -> Result<Option<Flags>, Failure> {
    let mut flags = Flags {
        package: String::new(),
        files: Vec::new(),
        tests: Vec::new(),
        compiled: Vec::new(),
        most: 40,
        jobs: thread::available_parallelism()?.get(),
        shard: (0, 1),
        again: false,
        list: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Value(package) => flags.package = package.string()?,
            Arg::Long("file") => flags.files.push(parser.value()?.string()?),
            Arg::Long("test") => flags.tests.push(parser.value()?.string()?),
            Arg::Long("compile") => {
                let test = parser.value()?.string()?;
                let (program, name) = test.rsplit_once(':').ok_or("--compile PACKAGE:TEST:NAME")?;
                flags.compiled.push((program.to_owned(), name.to_owned()));
            }
            Arg::Long("most") => flags.most = parser.value()?.parse()?,
            Arg::Long("jobs") => flags.jobs = parser.value()?.parse()?,
            Arg::Long("shard") => {
                let shard = parser.value()?.string()?;
                let (part, of) = shard.split_once('/').ok_or("--shard K/N")?;
                flags.shard = (part.parse()?, of.parse()?);
            }
            Arg::Long("again") => flags.again = true,
            Arg::Long("list") => flags.list = true,
            other => {
                let is_help = matches!(other, Arg::Long("help") | Arg::Short('h'));
                return if is_help {
                    Ok(None)
                } else {
                    Err(other.unexpected().into())
                };
            }
        }
    }
    if flags.tests.is_empty() {
        flags.tests.push(flags.package.clone());
    }
    Ok((!flags.package.is_empty()).then_some(flags))
}

fn main() -> Result<(), Failure> {
    if let Some(commands) = env::var_os(compile::COMMANDS) {
        return compile::wrap(Path::new(&commands));
    }
    let Some(flags) = flags()? else {
        print(HELP);
        return Ok(());
    };
    let root = env::current_dir()?;
    let home = root.join("target/mutants").join(&flags.package);
    fs::create_dir_all(&home)?;
    // Not shared with other trees: cargo takes a crate of the same name and version for the same, wherever it is.
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| home.join("build"), PathBuf::from);
    let mutants = list::list(&root, &flags.package, &[])?;
    print(&format!("{} mutants", mutants.len()));
    let mut tree = program::Tree::new(&root, home.join("tree"), target, &flags.package, &mutants)?;
    let programs = tree.build(&flags.tests)?;
    let (compiling, names): (Vec<String>, Vec<String>) = flags.compiled.iter().cloned().unzip();
    let compiling = tree.build(&compiling)?;
    let switchable = tree.switchable();
    print(&format!(
        "{} in the program, {} refused",
        switchable.len(),
        tree.refused().len()
    ));
    let chosen = list::list(&root, &flags.package, &flags.files)?;
    let chosen: BTreeSet<&str> = chosen.iter().map(|mutant| mutant.name.as_str()).collect();
    let rest = (1..=mutants.len()).filter(|number| !switchable.contains(number));
    let rest: Vec<&str> = rest
        .map(|number| mutants[number - 1].name.as_str())
        .collect();
    fs::write(home.join("rest"), rest.join("\n"))?;

    let mut judge = Judge {
        mutants: &mutants,
        tests: &[],
        file: home.join("results"),
        most: flags.most,
        jobs: flags.jobs,
    };
    if flags.list {
        print(&judge.report(&switchable, &chosen));
        return Ok(());
    }
    let (baselines, commands) = (home.join("baselines"), home.join("commands"));
    let version = version(&programs, &compiling, &mutants)?;
    if fs::read_to_string(home.join("version")).ok().as_ref() != Some(&version) {
        fs::remove_file(&baselines).ok();
        fs::remove_dir_all(&commands).ok();
        fs::write(home.join("version"), version)?;
    }
    let mut tests = Vec::new();
    for program in &programs {
        tests.extend(test::tests(program)?);
    }
    for (program, name) in compiling.iter().zip(&names) {
        tests.extend(compile::tests(
            program,
            name,
            &commands.join(name),
            &tree.target,
        )?);
    }
    let scratch = home.join("scratch");
    let tests = judge::baselines(tests, &baselines, flags.jobs, &scratch)?;
    judge.tests = &tests;
    let outcomes = judge.outcomes();
    let is_left = |number: &usize| {
        let name = mutants[number - 1].name.as_str();
        let outcome = outcomes.get(name);
        chosen.contains(name)
            && outcome.is_none_or(|outcome| flags.again && !outcome.starts_with("found"))
    };
    let numbers: Vec<usize> = switchable.iter().copied().filter(is_left).collect();
    let numbers: Vec<usize> = numbers
        .into_iter()
        .filter(|number| number % flags.shard.1 == flags.shard.0)
        .collect();
    judge.run(&numbers, &scratch)?;
    print(&judge.report(&switchable, &chosen));
    Ok(())
}

/// What the baselines depend on.
fn version(
    programs: &[program::Program],
    compiling: &[program::Program],
    mutants: &[list::Mutant],
) -> Result<String, Failure> {
    let mut version = format!("{} mutants", mutants.len());
    let files: BTreeSet<&PathBuf> = programs
        .iter()
        .chain(compiling)
        .map(|program| &program.path)
        .collect();
    for file in files {
        version += &format!("\n{} {:?}", file.display(), fs::metadata(file)?.modified()?);
    }
    Ok(version)
}

/// What a command prints, which must not fail.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String, Failure> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn print(text: &str) {
    // A closed pipe ends nothing.
    let _ = writeln!(std::io::stdout(), "{text}");
}
