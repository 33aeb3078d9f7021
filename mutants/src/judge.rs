//! Runs the tests against each mutant, and notes what they say.

use crate::list::Mutant;
use crate::test::{Baseline, Outcome, Test};
use crate::{Failure, print};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Runs `work` for each number below `count`, a few at once, each with a folder for its files.
fn at_once(
    jobs: usize,
    count: usize,
    folder: &Path,
    work: impl Fn(usize, &Path) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let run = |job: usize| {
        let scratch = folder.join(job.to_string());
        fs::create_dir_all(&scratch).map_err(|error| error.to_string())?;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(());
            }
            work(index, &scratch).map_err(|error| error.to_string())?;
        }
    };
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..jobs).map(|job| scope.spawn(move || run(job))).collect();
        let mut ends = jobs.into_iter().map(|job| {
            job.join()
                .unwrap_or_else(|_| Err("a job panicked".to_owned()))
        });
        ends.try_for_each(|end| end).map_err(Failure::from)
    })
}

/// Runs every test without a mutant, except those that are in the file already, and leaves out those that fail.
pub(crate) fn baselines(
    tests: Vec<Test>,
    file: &Path,
    jobs: usize,
    scratch: &Path,
) -> Result<Vec<(Test, Baseline)>, Failure> {
    let mut known = BTreeMap::<String, Value>::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let line: Value = serde_json::from_str(line)?;
        known.insert(line["test"].as_str().unwrap_or_default().to_owned(), line);
    }
    let notes = Mutex::new(OpenOptions::new().create(true).append(true).open(file)?);
    let done = Mutex::new(Vec::new());
    let tests: Vec<Mutex<Option<Test>>> = tests
        .into_iter()
        .map(|test| Mutex::new(Some(test)))
        .collect();
    print(&format!(
        "{} tests, {} of them known",
        tests.len(),
        known.len()
    ));
    at_once(jobs, tests.len(), scratch, |index, scratch| {
        let Some(mut test) = lock(&tests[index]).take() else {
            return Ok(());
        };
        let baseline = if let Some(known) = known.get(&test.name) {
            test.printed = known["printed"].as_str().map(str::to_owned);
            Baseline {
                passes: known["passes"] == true,
                time: Duration::from_millis(known["ms"].as_u64().unwrap_or(0)),
                reached: serde_json::from_value(known["reached"].clone())?,
            }
        } else {
            let baseline = test.baseline(scratch)?;
            let (passes, ms, reached) = (
                baseline.passes,
                baseline.time.as_millis(),
                &baseline.reached,
            );
            let note = json!({ "test": test.name, "passes": passes, "ms": u64::try_from(ms)?, "reached": reached, "printed": test.printed });
            writeln!(lock(&notes), "{note}")?;
            baseline
        };
        if baseline.passes {
            lock(&done).push((test, baseline));
        } else {
            print(&format!(
                "left out, since it fails without a mutant: {}",
                test.name
            ));
        }
        Ok(())
    })?;
    Ok(done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) struct Judge<'a> {
    pub(crate) mutants: &'a [Mutant],
    pub(crate) tests: &'a [(Test, Baseline)],
    /// The results: a mutant's name, its outcome, and the test that found it.
    pub(crate) file: PathBuf,
    /// At most so many tests run against one mutant.
    pub(crate) most: usize,
    pub(crate) jobs: usize,
}

impl Judge<'_> {
    /// The outcomes so far, by the mutants' names.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        lines
            .map(|(name, outcome)| (name.to_owned(), outcome.to_owned()))
            .collect()
    }

    /// Judges these mutants.
    pub(crate) fn run(&self, numbers: &[usize], scratch: &Path) -> Result<(), Failure> {
        let results = Mutex::new(
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.file)?,
        );
        let left = AtomicUsize::new(numbers.len());
        at_once(self.jobs, numbers.len(), scratch, |index, scratch| {
            let number = numbers[index];
            let outcome = self.outcome(number, scratch)?;
            let name = &self.mutants[number - 1].name;
            writeln!(lock(&results), "{name}\t{outcome}")?;
            let left = left.fetch_sub(1, Ordering::Relaxed) - 1;
            if !outcome.starts_with("found") || left.is_multiple_of(100) {
                print(&format!("{left} left; {name}: {outcome}"));
            }
            Ok(())
        })
    }

    fn outcome(&self, number: usize, scratch: &Path) -> Result<String, Failure> {
        let reaching = self
            .tests
            .iter()
            .filter(|(_, baseline)| baseline.reached.contains(&number));
        let mut reaching: Vec<_> = reaching.collect();
        // A fast test of few mutants is the likeliest to say soon that it fails.
        reaching.sort_by_key(|(_, baseline)| {
            (baseline.time.as_millis() + 20) * baseline.reached.len() as u128
        });
        for (test, baseline) in reaching.iter().take(self.most) {
            let limit = Duration::from_secs(20) + 4 * baseline.time;
            let outcome = test.run(number, None, limit, scratch)?.0;
            // A test that fails now and then has found nothing. The compiler prints the same each time.
            let is_sure = || {
                let again = || test.run(0, None, limit, scratch);
                Ok::<_, Failure>(test.printed.is_some() || again()?.0 == Outcome::Passes)
            };
            if outcome != Outcome::Passes && is_sure()? {
                let how = if outcome == Outcome::Hangs {
                    "found by its time"
                } else {
                    "found"
                };
                return Ok(format!("{how}\t{}", test.name));
            }
        }
        Ok(match reaching.len() {
            0 => "reached by no test".to_owned(),
            count => format!("survives\t{} of {count} tests", count.min(self.most)),
        })
    }

    /// A table by file, and the names of those that no test found.
    pub(crate) fn report(&self, switchable: &BTreeSet<usize>, chosen: &BTreeSet<&str>) -> String {
        let outcomes = self.outcomes();
        let mut rows = BTreeMap::<&str, [usize; 5]>::new();
        let mut survivors = String::new();
        let mutants = self.mutants.iter().enumerate();
        for (index, mutant) in mutants.filter(|(_, mutant)| chosen.contains(mutant.name.as_str())) {
            let row = rows.entry(&mutant.file).or_default();
            row[0] += 1;
            if !switchable.contains(&(index + 1)) {
                continue;
            }
            row[1] += 1;
            match outcomes.get(&mutant.name) {
                Some(outcome) if outcome.starts_with("found") => row[2] += 1,
                Some(outcome) => {
                    row[if outcome.starts_with("survives") {
                        3
                    } else {
                        4
                    }] += 1;
                    survivors += &format!("{}: {outcome}\n", mutant.name);
                }
                None => {}
            }
        }
        let mut table = "| file | mutants | in the program | found | survive | reached by no test |\n| --- | --- | --- | --- | --- | --- |\n".to_owned();
        let mut total = [0; 5];
        for row in rows.values() {
            for (sum, cell) in total.iter_mut().zip(row) {
                *sum += cell;
            }
        }
        for (file, row) in rows.into_iter().chain([("together", total)]) {
            let cells = row.map(|cell| cell.to_string()).join(" | ");
            table += &format!("| {file} | {cells} |\n");
        }
        format!("{table}\n{survivors}")
    }
}
