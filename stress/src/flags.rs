//! Which flags does the house take, and which values make sense?

use crate::bug::Bug;
use crate::fault::Fault;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Bookings and leases under load from several processes, while faults run their course on a server of the house's own.

Usage: cargo run --release -p advisory-stress -- [FLAGS]

      --operations N   how many operations over all runs (default 120000)
      --long           the long form: 1020000 operations
      --only FAULT     run this fault alone; may be given again
      --bug BUG        put this bug into the programs: the checker has to find it; may be given again
      --workers N      how many processes run the load (default 3)
      --hold MS        how long a fault lasts (default 1500)
      --seed N         what the workers draw their numbers from (default 1)
      --json FILE      write the figures, and each violation, to this file
  -h, --help           print this

Faults: {faults}
Bugs: {bugs}

Exit status: 0 when no rule was broken, and with --bug when in each run one was; else 1; 2 for a wrong flag.
";

pub(crate) struct Flags {
    pub(crate) operations: u64,
    pub(crate) faults: Vec<Fault>,
    /// None is the program as it should be.
    pub(crate) bugs: Vec<Option<Bug>>,
    pub(crate) workers: u32,
    pub(crate) hold: u64,
    pub(crate) seed: u64,
    pub(crate) json: Option<PathBuf>,
}

impl Flags {
    /// `None` asks for help.
    pub(crate) fn parse() -> Result<Option<Self>, lexopt::Error> {
        use lexopt::prelude::*;
        let mut flags = Self {
            operations: 120_000,
            faults: Vec::new(),
            bugs: Vec::new(),
            workers: 3,
            hold: 1_500,
            seed: 1,
            json: None,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("operations") => flags.operations = parser.value()?.parse()?,
                Long("long") => flags.operations = 1_020_000,
                Long("only") => flags.faults.push(parser.value()?.parse()?),
                Long("bug") => flags.bugs.push(Some(parser.value()?.parse()?)),
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
        if flags.faults.is_empty() {
            flags.faults = Fault::ALL.to_vec();
        }
        if flags.bugs.is_empty() {
            flags.bugs.push(None);
        }
        Ok(Some(flags))
    }

    pub(crate) fn help() -> String {
        let faults = Fault::ALL.map(Fault::name).join(", ");
        let bugs = Bug::ALL.map(Bug::name).join(", ");
        HELP.replace("{faults}", &faults).replace("{bugs}", &bugs)
    }
}
