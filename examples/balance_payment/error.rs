//! Errors of a payment.

use std::error::Error;
use std::fmt;

#[derive(Debug)]
pub(crate) enum PaymentError {
    /// The balance is too small.
    Overdraft {
        account: i64,
    },
    /// The wait for the accounts took too long, or the lock failed.
    Lock(advisory_runtime::Error),
    Database(diesel::result::Error),
}

impl From<advisory_runtime::Error> for PaymentError {
    fn from(error: advisory_runtime::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<diesel::result::Error> for PaymentError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for PaymentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overdraft { account } => write!(f, "account {account} has too little"),
            Self::Lock(error) => error.fmt(f),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl Error for PaymentError {}
