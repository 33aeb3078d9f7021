//! Changes of address: asked for, then confirmed.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_domain::GuestId;
use lets_domain::locks::{EmailLock, GuestLock};
use lets_store::{Error, Result};

/// What a guest sends to change the address.
pub struct ChangeRequest {
    pub guest: GuestId,
    pub new_email: String,
}

/// One open change a guest.
#[advisory_lock(key = "email-change:<request.guest: uuid>", component = "guests")]
pub async fn ask(conn: &mut AsyncPgConnection, request: &ChangeRequest) -> Result<i64> {
    Err(Error::Refused)
}

/// Gives the guest the new address, if nobody has it by now.
///
/// The guest and the address in one step: two guests who ask for each other's address do not wait for each other forever.
#[advisory_lock(
    keys = [GuestLock { guest: request.guest }, EmailLock { address: request.new_email.clone() }],
    wait = "5s",
    isolation = "serializable"
)]
pub async fn confirm(conn: &mut AsyncPgConnection, request: &ChangeRequest) -> Result<()> {
    Err(Error::Refused)
}
