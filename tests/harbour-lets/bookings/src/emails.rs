//! Changes of address: asked for, then confirmed.

use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::GuestId;
use lets_domain::locks::{EmailLock, GuestLock};
use lets_store::schema::{email_changes, guests};
use lets_store::{Refusal, Result};

/// What a guest sends to change the address.
pub struct ChangeRequest {
    pub guest: GuestId,
    pub new_email: String,
}

/// One open change a guest.
#[advisory_lock(key = "email-change:<request.guest: uuid>", component = "guests")]
pub async fn ask(conn: &mut AsyncPgConnection, request: &ChangeRequest) -> Result<i64> {
    let open = email_changes::table
        .filter(email_changes::guest_id.eq(request.guest.0))
        .filter(email_changes::confirmed_at.is_null());
    diesel::delete(open).execute(conn).await?;
    let id = diesel::insert_into(email_changes::table)
        .values((
            email_changes::guest_id.eq(request.guest.0),
            email_changes::new_email.eq(&request.new_email),
        ))
        .returning(email_changes::id)
        .get_result(conn)
        .await?;
    Ok(id)
}

/// Gives the guest the new address, if nobody has it by now.
///
/// The guest and the address in one step: two guests who ask for each other's address do not wait for each other forever.
#[advisory_lock(
    keys = [GuestLock { guest: request.guest }, EmailLock { address: request.new_email.clone() }],
    wait = "5s",
    isolation = "serializable"
)]
pub async fn confirm(
    conn: &mut AsyncPgConnection,
    change: i64,
    request: &ChangeRequest,
) -> Result<()> {
    let address = request.new_email.trim().to_ascii_lowercase();
    let taken = guests::table
        .filter(guests::email.eq(&address))
        .filter(guests::id.ne(request.guest.0))
        .filter(guests::merged_into.is_null());
    if taken.count().get_result::<i64>(conn).await? > 0 {
        return Err(Refusal::Taken.into());
    }
    let open = email_changes::table
        .find(change)
        .filter(email_changes::confirmed_at.is_null());
    let confirmed = diesel::update(open)
        .set(email_changes::confirmed_at.eq(diesel::dsl::now))
        .execute(conn)
        .await?;
    if confirmed == 0 {
        return Err(Refusal::AlreadyDone.into());
    }
    diesel::update(guests::table.find(request.guest.0))
        .set(guests::email.eq(&address))
        .execute(conn)
        .await?;
    Ok(())
}
