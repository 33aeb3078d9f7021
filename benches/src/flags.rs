//! What is written behind the command.

use lexopt::Arg::Long;
use lexopt::ValueExt;
use std::path::PathBuf;

pub(crate) struct Flags {
    /// How many pairs are measured.
    pub(crate) rounds: usize,
    /// Where the figures go as JSON.
    pub(crate) json: Option<PathBuf>,
    /// What a case's line has to contain.
    pub(crate) only: Option<String>,
    /// The folder that plots are drawn into.
    pub(crate) plots: Option<PathBuf>,
}

impl Flags {
    pub(crate) fn parse() -> Result<Self, lexopt::Error> {
        let mut flags = Self {
            rounds: 10,
            json: None,
            only: None,
            plots: None,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("rounds") => flags.rounds = parser.value()?.parse()?,
                Long("json") => flags.json = Some(parser.value()?.into()),
                Long("only") => flags.only = Some(parser.value()?.string()?),
                Long("plots") => flags.plots = Some(parser.value()?.into()),
                other => return Err(other.unexpected()),
            }
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
