//! Ids: a separate type for each kind of thing, so that a guest cannot be passed as a booking.

use advisory_runtime::KeyPart;
use uuid::Uuid;

macro_rules! id {
    ($($name:ident($inner:ty);)*) => { $(
        #[derive(Clone, Copy, Debug, KeyPart)]
        pub struct $name(pub $inner);
    )* };
}

id! {
    TenantId(Uuid);
    PropertyId(Uuid);
    RoomId(i64);
    GuestId(Uuid);
    BookingId(Uuid);
    AccountId(i64);
    OwnerId(i64);
    CleanerId(i64);
    ScheduleId(Uuid);
}
