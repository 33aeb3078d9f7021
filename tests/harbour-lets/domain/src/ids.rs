//! Ids: a separate type for each kind of thing, so that a guest cannot be passed as a booking.

use advisory_runtime::KeyPart;
use std::fmt;
use uuid::Uuid;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, KeyPart)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(id: $inner) -> Self {
                Self(id)
            }
        }
    )* };
}

id! {
    /// A firm that lets through us.
    TenantId(Uuid);
    /// A house.
    PropertyId(Uuid);
    /// A flat or a room of a house.
    RoomId(i64);
    /// A guest.
    GuestId(Uuid);
    /// One stay.
    BookingId(Uuid);
    /// An account: a guest's, an owner's or ours.
    AccountId(i64);
    /// The owner of a house.
    OwnerId(i64);
    /// A cleaner.
    CleanerId(i64);
    /// A plan from which events are generated.
    ScheduleId(Uuid);
}
