//! Amounts, in cents: a float is not exact.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Neg, Sub};

/// An amount in the only currency of the accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cents(pub i64);

impl Cents {
    pub const ZERO: Self = Self(0);

    /// This many per cent of it, rounded to our loss.
    #[must_use]
    pub fn percent(self, percent: i64) -> Self {
        Self(self.0.saturating_mul(percent) / 100)
    }

    #[must_use]
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }

    #[must_use]
    pub fn times(self, count: i64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl Add for Cents {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Cents {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Neg for Cents {
    type Output = Self;

    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl Sum for Cents {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let cents = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:02}", cents / 100, cents % 100)
    }
}
