//! The two attributes: a lock and a lease.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    Lock,
    Lease,
}

impl Attribute {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lock => "`#[advisory_lock]`",
            Self::Lease => "`#[advisory_lease]`",
        }
    }

    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Lease => "lease",
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Lock => Self::Lease,
            Self::Lease => Self::Lock,
        }
    }
}
