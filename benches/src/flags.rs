//! What is written behind the command.

use lexopt::Arg::Long;
use lexopt::ValueExt;
use std::path::PathBuf;

pub(crate) struct Flags {
    /// How many pairs are measured.
    pub(crate) rounds: usize,
    /// Where the figures go as JSON.
    pub(crate) json: Option<PathBuf>,
}

impl Flags {
    pub(crate) fn parse() -> Result<Self, lexopt::Error> {
        let mut flags = Self {
            rounds: 15,
            json: None,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("rounds") => flags.rounds = parser.value()?.parse()?,
                Long("json") => flags.json = Some(parser.value()?.into()),
                other => return Err(other.unexpected()),
            }
        }
        if flags.rounds == 0 {
            return Err("`--rounds` is at least 1".into());
        }
        Ok(flags)
    }
}
