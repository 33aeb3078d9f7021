//! The history that a client records: a line for each step of an operation, in a file that outlives
//! its process.
//!
//! Each line is one write to the operating system's memory, so what a process wrote before it was
//! killed can be read.
//! - `? OP KIND NUMBER`: it begins; `@ OP TICK`: the database confirms that it is inside;
//!   `! OP OUTCOME DEPARTED AT WHY`: it has ended,
//! - `+ OP VERSION`: it has applied a migration,
//! - `= OP LEASE TOKEN FROM TO`: the holder of a lease was inside from one tick to the other, and
//!   still held the lease after that, as far as it knew; or the work on a job of this tenant,
//! - `% OP HELD`: its body has outlasted its ttl, and whether it still held its row (1) or not (0).

use crate::operation_kind::OperationKind;
use crate::outcome::Outcome;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The file of one worker.
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create_new(true).open(path)?;
        Ok(Self(file))
    }

    /// # Panics
    ///
    /// If the disk is full: a history with gaps would prove nothing.
    fn line(&self, line: &str) {
        (&self.0)
            .write_all(line.as_bytes())
            .expect("room for the history");
    }

    pub(crate) fn begun(&self, op: i64, kind: OperationKind, number: i64) {
        let kind = kind.name();
        self.line(&format!("? {op} {kind} {number}\n"));
    }

    pub(crate) fn applied(&self, op: i64, version: i64) {
        self.line(&format!("+ {op} {version}\n"));
    }

    pub(crate) fn entered(&self, op: i64, tick: i64) {
        self.line(&format!("@ {op} {tick}\n"));
    }

    /// `departed` is 0 if the database has not confirmed it.
    pub(crate) fn ended(&self, op: i64, outcome: Outcome, departed: i64, at: i64, why: &str) {
        let outcome = outcome.name();
        self.line(&format!("! {op} {outcome} {departed} {at} {why}\n"));
    }

    pub(crate) fn absent(&self, op: i64, is_held: bool) {
        self.line(&format!("% {op} {}\n", i32::from(is_held)));
    }

    pub(crate) fn claimed(&self, op: i64, claim: Claim) {
        let Claim {
            lease,
            token,
            from,
            to,
        } = claim;
        self.line(&format!("= {op} {lease} {token} {from} {to}\n"));
    }
}

/// An operation, as its client knows it.
#[derive(Debug, Default)]
pub(crate) struct Operation {
    pub(crate) kind: OperationKind,
    /// The number of the slot, the room, the lease or the work.
    pub(crate) number: i64,
    pub(crate) entered: Option<i64>,
    pub(crate) departed: Option<i64>,
    /// `None` if the client was killed before it knew.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) at: i64,
    pub(crate) why: String,
}

/// The time that a holder of a lease was inside, as two ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) lease: i64,
    pub(crate) token: i64,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// The records of all clients of one run.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: HashMap<i64, Operation>,
    pub(crate) claims: Vec<(i64, Claim)>,
    /// Operations, and the versions that they have applied.
    pub(crate) applied: Vec<(i64, i64)>,
    /// Operations whose body has outlasted its ttl, and whether it still held its row.
    pub(crate) absent: Vec<(i64, bool)>,
}

impl History {
    pub(crate) fn read(&mut self, path: &Path) -> io::Result<()> {
        let text = fs::read_to_string(path)?;
        // The last line of a killed process can be incomplete.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        for line in whole.lines() {
            if self.take(line).is_none() {
                let line = format!("{}: no history is `{line}`", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, line));
            }
        }
        Ok(())
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let sign = words.next()?;
        let mut number = || words.next()?.parse::<i64>().ok();
        let op = number()?;
        match sign {
            "?" => {
                let operation = self.operations.entry(op).or_default();
                operation.kind = words.next()?.parse().ok()?;
                operation.number = words.next()?.parse().ok()?;
            }
            "+" => self.applied.push((op, number()?)),
            "%" => self.absent.push((op, number()? != 0)),
            "@" => self.operations.entry(op).or_default().entered = Some(number()?),
            "=" => {
                let claim = Claim {
                    lease: number()?,
                    token: number()?,
                    from: number()?,
                    to: number()?,
                };
                self.claims.push((op, claim));
            }
            "!" => {
                let operation = self.operations.entry(op).or_default();
                operation.outcome = Some(words.next()?.parse().ok()?);
                let mut number = || words.next()?.parse::<i64>().ok();
                operation.departed = Some(number()?).filter(|tick| *tick != 0);
                operation.at = number()?;
                operation.why = words.collect::<Vec<_>>().join(" ");
            }
            _ => return None,
        }
        Some(())
    }
}
