//! A stay, and its state.

use crate::{Cents, GuestId, Nights, RoomId, TenantId};
use std::fmt;

/// What a guest asks for.
#[derive(Clone, Debug)]
pub struct NewStay {
    pub tenant: TenantId,
    pub room: RoomId,
    pub guest: GuestId,
    pub nights: Nights,
    pub price: Cents,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BookingState {
    Booked,
    CheckedIn,
    CheckedOut,
    Cancelled,
}

impl BookingState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Booked => "booked",
            Self::CheckedIn => "checked-in",
            Self::CheckedOut => "checked-out",
            Self::Cancelled => "cancelled",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Booked,
            Self::CheckedIn,
            Self::CheckedOut,
            Self::Cancelled,
        ]
        .into_iter()
        .find(|state| state.as_str() == text)
    }

    /// Whether one state may follow the other.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Booked, Self::CheckedIn | Self::Cancelled) | (Self::CheckedIn, Self::CheckedOut)
        )
    }
}

impl fmt::Display for BookingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
