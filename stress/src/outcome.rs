//! The outcome of an operation, as its caller saw it.

use crate::named::named;
use advisory_runtime::{Error, lease};
use diesel::result::Error as DieselError;

named! {
    /// What the caller may rely on. The names are those in the history.
    Outcome {
        /// `Ok`: booked, or written.
        Confirmed = "C",
        /// `Ok`: it held the lock, and the slot was booked already.
        Taken = "T",
        /// Another process holds the key, or no connection was available. Nothing happened.
        Refused = "R",
        /// An error that guarantees that nothing happened.
        Failed = "F",
        /// The call was dropped before its body had ended. Nothing happened.
        Dropped = "D",
        /// It may have happened.
        Unknown = "U",
    }
}

impl Outcome {
    pub(crate) const fn is_granted(self) -> bool {
        matches!(self, Self::Confirmed | Self::Taken)
    }
}

/// The outcome that an error of a transaction-level lock means.
pub(crate) fn of_error(error: &Error) -> Outcome {
    match error {
        error if error.is_busy() => Outcome::Refused,
        Error::CommitUnknown { .. } => Outcome::Unknown,
        _ => Outcome::Failed,
    }
}

/// The outcome that an error of a lease means.
pub(crate) fn of_lease_error(error: &lease::Error) -> Outcome {
    match error {
        error if error.is_held() || error.is_done() => Outcome::Refused,
        lease::Error::CommitUnknown { .. } => Outcome::Unknown,
        _ => Outcome::Failed,
    }
}

/// The name of the error's variant, with the beginning of the database's message if a statement
/// failed.
pub(crate) fn name(error: &impl std::fmt::Debug, database: Option<&DieselError>) -> String {
    let name = format!("{error:?}");
    let end = name.find(|letter: char| !letter.is_alphanumeric());
    let name = &name[..end.unwrap_or(name.len())];
    match database {
        Some(said) if matches!(name, "Database" | "Cancelled") => {
            let said = said.to_string();
            let words = said
                .split(' ')
                .filter(|word| word.chars().all(char::is_alphabetic));
            let words: Vec<&str> = words.take(6).collect();
            format!("{name}: {}", words.join(" "))
        }
        _ => name.to_owned(),
    }
}
