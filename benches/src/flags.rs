//! What is written behind the command.

use lexopt::Arg::Long;
use lexopt::ValueExt;
use std::path::PathBuf;

/// What to do.
pub(crate) enum Task {
    /// Measure by the clock.
    Clock,
    /// Count instructions.
    Instructions,
    /// Write the tables and charts from the recorded runs.
    Publish,
    /// Call one way to lock again and again, and measure nothing: `instructions` does, from outside.
    Call {
        way: String,
        times: u32,
        url: String,
    },
}

pub(crate) struct Flags {
    pub(crate) task: Task,
    /// How many pairs are measured.
    pub(crate) rounds: usize,
    /// Where the figures go as JSON.
    pub(crate) json: Option<PathBuf>,
    /// What a case's line has to contain.
    pub(crate) only: Option<String>,
    /// Whether the figures are kept in the repository, and published.
    pub(crate) record: bool,
}

pub(crate) const HELP: &str = "\
Ours beside the rivals, on servers that this starts itself.

  (nothing)            measures by the clock, about four minutes
  --instructions       counts instructions instead, by valgrind
  --publish            writes docs/benchmarks.md and its charts from the runs in benches/runs
  --only TEXT          what a line has to contain
  --rounds N           how many pairs are measured by the clock: 10
  --json FILE          writes the figures there too
  --record             keeps the figures in benches/runs, and publishes";

impl Flags {
    pub(crate) fn parse() -> Result<Self, lexopt::Error> {
        let mut flags = Self {
            task: Task::Clock,
            rounds: 10,
            json: None,
            only: None,
            record: false,
        };
        let (mut way, mut times, mut url) = (None, 1, String::new());
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("instructions") => flags.task = Task::Instructions,
                Long("publish") => flags.task = Task::Publish,
                Long("rounds") => flags.rounds = parser.value()?.parse()?,
                Long("json") => flags.json = Some(parser.value()?.into()),
                Long("only") => flags.only = Some(parser.value()?.string()?),
                Long("record") => flags.record = true,
                Long("help") => {
                    println!("{HELP}");
                    std::process::exit(0);
                }
                Long("call") => way = Some(parser.value()?.string()?),
                Long("times") => times = parser.value()?.parse()?,
                Long("url") => url = parser.value()?.string()?,
                other => return Err(other.unexpected()),
            }
        }
        if let Some(way) = way {
            flags.task = Task::Call { way, times, url };
        }
        if flags.record && flags.only.is_some() {
            return Err("`--record` keeps whole runs: leave out `--only`".into());
        }
        if flags.rounds == 0 {
            return Err("`--rounds` is at least 1".into());
        }
        Ok(flags)
    }

    /// Whether a case with this label is measured.
    pub(crate) fn wants(&self, label: &str) -> bool {
        // The table pads with spaces.
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let label = plain(label);
        self.only
            .as_ref()
            .is_none_or(|only| label.contains(&plain(only)))
    }
}
