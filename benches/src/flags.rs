//! The flags of the command line.

use lexopt::Arg::Long;
use lexopt::ValueExt;
use std::path::PathBuf;

/// The task of one run of the program.
pub(crate) enum Task {
    /// Measures times.
    Clock,
    /// Measures jobs a second of whole queues.
    Queue,
    /// Counts instructions.
    Instructions,
    /// Writes the tables and charts from the recorded runs.
    Publish,
    /// Runs one queue in this process: `queue` measures it from outside.
    RunQueue { queue: String, words: Vec<String> },
    /// Calls one way to lock repeatedly, and measures nothing: `instructions` measures this process
    /// from outside.
    Call {
        way: String,
        times: u32,
        url: String,
    },
}

pub(crate) struct Flags {
    pub(crate) task: Task,
    /// How often each is measured, if it was said.
    pub(crate) rounds: Option<usize>,
    /// The JSON file for the figures.
    pub(crate) json: Option<PathBuf>,
    /// Text that the line of a case must contain.
    pub(crate) only: Option<String>,
    /// Whether the figures are stored in the repository, and published.
    pub(crate) record: bool,
}

pub(crate) const HELP: &str = "\
Benchmarks against the rivals, on servers that this starts itself.

  (nothing)            measures times; takes about seven minutes
  --instructions       counts instructions instead, with valgrind
  --publish            writes docs/benchmarks.md and its charts from the runs in benches/runs
  --only TEXT          only cases whose line contains this text
  --only queue         measures whole job queues instead, ours and others; \"queue TEXT\" only some; about half an hour
  --rounds N           how many pairs are measured (default 10), or rounds of queues (default 5)
  --json FILE          also writes the figures to this file
  --record             stores the figures in benches/runs, and publishes";

impl Flags {
    pub(crate) fn parse() -> Result<Self, lexopt::Error> {
        let mut flags = Self {
            task: Task::Clock,
            rounds: None,
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
                Long("rounds") => flags.rounds = Some(parser.value()?.parse()?),
                Long("json") => flags.json = Some(parser.value()?.into()),
                Long("only") => flags.only = Some(parser.value()?.string()?),
                Long("record") => flags.record = true,
                Long("help") => {
                    println!("{HELP}");
                    std::process::exit(0);
                }
                Long("call") => way = Some(parser.value()?.string()?),
                Long("queue") => {
                    let queue = parser.value()?.string()?;
                    let words = parser.values()?.map(ValueExt::string);
                    let words = words.collect::<Result<_, _>>()?;
                    flags.task = Task::RunQueue { queue, words };
                }
                Long("times") => times = parser.value()?.parse()?,
                Long("url") => url = parser.value()?.string()?,
                other => return Err(other.unexpected()),
            }
        }
        if let Some(way) = way {
            flags.task = Task::Call { way, times, url };
        }
        if matches!(flags.task, Task::Clock) && flags.queue().is_some() {
            flags.task = Task::Queue;
        }
        if flags.record && flags.only.is_some() && flags.queue() != Some("") {
            return Err("`--record` keeps whole runs: leave out `--only`".into());
        }
        if flags.rounds == Some(0) {
            return Err("`--rounds` is at least 1".into());
        }
        Ok(flags)
    }

    /// The pairs of a case.
    pub(crate) fn pairs(&self) -> usize {
        self.rounds.unwrap_or(10)
    }

    /// The text of the queues that are measured; `None` if it is not queues.
    fn queue(&self) -> Option<&str> {
        let text = self.only.as_deref()?.strip_prefix("queue")?;
        (text.is_empty() || text.starts_with(' ')).then(|| text.trim())
    }

    /// Whether a queue with this label is measured: it has each of the words.
    pub(crate) fn wants_queue(&self, label: &str) -> bool {
        let mut words = self.queue().unwrap_or_default().split(' ');
        words.all(|word| label.contains(word))
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
