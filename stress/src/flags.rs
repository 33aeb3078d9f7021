//! The flags of the stress test, and their limits.

use crate::bug::Bug;
use crate::fault::Fault;
use std::path::PathBuf;
use std::str::FromStr;

pub(crate) const HELP: &str = "\
Bookings, leases and jobs under load from several processes, while faults happen on a server of its own.

Without flags: each fault, then each bug, under the fault that shows it or without one. A run continues until it has shown enough: bookings, slots found booked, faults,
and each kind to hold a lock. With a bug the load stops repeatedly for the checker, until the bug is found.

Usage: cargo run --release -p advisory-stress -- [FLAGS]

      --operations N   operations in all runs without a bug together (default 130000)
      --long           the long form: 1040000 operations
      --only FAULT     run this fault and no bug; may be given again; `all` is every fault
      --bug BUG        replace the lock by this bug, which the checker has to find; may be given again; `all` is every bug
      --within S       how long a run may take until it has shown enough, in seconds (default 1200)
      --workers N      how many processes run the load (default 3)
      --hold MS        how long a fault lasts (default 1500)
      --seed N         the seed of the workers' random numbers (default 1)
      --json FILE      write the figures and the violations to this file
  -h, --help           print this

Faults: {faults}
Bugs: {bugs}

Exit status: 0 if no rule was broken, and each bug was found; 1 otherwise; 2 for a wrong flag.
";

pub(crate) struct Flags {
    pub(crate) operations: u64,
    /// The fault and the bug of each run; without a bug, the correct program.
    pub(crate) runs: Vec<(Fault, Option<Bug>)>,
    pub(crate) within: u64,
    pub(crate) workers: u32,
    pub(crate) hold: u64,
    pub(crate) seed: u64,
    pub(crate) json: Option<PathBuf>,
}

impl Flags {
    /// `None` means help.
    pub(crate) fn parse() -> Result<Option<Self>, lexopt::Error> {
        use lexopt::prelude::*;
        let mut flags = Self {
            operations: 130_000,
            runs: Vec::new(),
            within: 1_200,
            workers: 3,
            hold: 1_500,
            seed: 1,
            json: None,
        };
        let (mut faults, mut bugs) = (Vec::new(), Vec::new());
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("operations") => flags.operations = parser.value()?.parse()?,
                Long("long") => flags.operations = 1_040_000,
                Long("only") => add(&mut faults, &Fault::ALL, &parser.value()?.string()?)?,
                Long("bug") => add(&mut bugs, &Bug::ALL, &parser.value()?.string()?)?,
                Long("within") => flags.within = parser.value()?.parse()?,
                Long("workers") => flags.workers = parser.value()?.parse()?,
                Long("hold") => flags.hold = parser.value()?.parse()?,
                Long("seed") => flags.seed = parser.value()?.parse()?,
                Long("json") => flags.json = Some(parser.value()?.into()),
                Short('h') | Long("help") => return Ok(None),
                _ => return Err(arg.unexpected()),
            }
        }
        if !(2..=16).contains(&flags.workers) {
            return Err("`--workers` is from 2 to 16".into());
        }
        if faults.is_empty() && bugs.is_empty() {
            (faults, bugs) = (Fault::ALL.to_vec(), Bug::ALL.to_vec());
            flags.runs = runs(&faults, &[]);
            faults.clear();
        }
        flags.runs.extend(runs(&faults, &bugs));
        Ok(Some(flags))
    }

    pub(crate) fn help() -> String {
        let faults = Fault::ALL.map(Fault::name).join(", ");
        let bugs = Bug::ALL.map(Bug::name).join(", ");
        HELP.replace("{faults}", &faults).replace("{bugs}", &bugs)
    }
}

fn add<T: Copy + FromStr<Err = String>>(
    to: &mut Vec<T>,
    all: &[T],
    value: &str,
) -> Result<(), lexopt::Error> {
    if value == "all" {
        to.extend(all);
    } else {
        to.push(value.parse()?);
    }
    Ok(())
}

/// Each fault, then each bug.
fn runs(faults: &[Fault], bugs: &[Bug]) -> Vec<(Fault, Option<Bug>)> {
    let bugs: Vec<Option<Bug>> = match bugs {
        [] => vec![None],
        bugs => bugs.iter().copied().map(Some).collect(),
    };
    let mut runs = Vec::new();
    for bug in bugs {
        match faults {
            [] => runs.push((bug.map_or(Fault::Calm, Fault::of_bug), bug)),
            faults => runs.extend(faults.iter().map(|fault| (*fault, bug))),
        }
    }
    runs
}
