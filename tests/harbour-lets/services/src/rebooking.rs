//! Rebooking after a storm: all stays of a guest move by some days, if there is room. The trait lets a mock test it.

use lets_bookings::BookingRepository;
use lets_domain::{GuestId, Nights};
use lets_store::{Error, Refusal, Result};

pub struct Rebooking<R> {
    pub bookings: R,
}

/// The outcome for each stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub moved: usize,
    pub cancelled: usize,
}

impl<R: BookingRepository> Rebooking<R> {
    /// Moves what can be moved, and cancels the rest.
    pub async fn postpone(&self, guest: GuestId, days: u64) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut stays = self.bookings.of_guest(guest).await?;
        // The last one first, so that a guest's stays do not block each other.
        stays.reverse();
        for stay in stays {
            let before = stay.nights();
            let arrives = before.arrives + chrono::Days::new(days);
            let nights = Nights::from(arrives, before.count().unsigned_abs());
            let nights = nights.ok_or(Error::Refused(Refusal::Invalid))?;
            let booking = stay.id.into();
            match self.bookings.relocate(booking, stay.room(), nights).await {
                Ok(()) => outcome.moved += 1,
                Err(Error::Refused(Refusal::Taken)) => {
                    self.bookings.cancel(booking).await?;
                    outcome.cancelled += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(outcome)
    }
}
