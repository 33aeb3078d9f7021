//! Guests, and the merging of two records of one person.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::GuestId;
use lets_domain::locks::{EmailLock, GuestLock};
use lets_store::schema::{bookings, guests};
use lets_store::{Pool, Refusal, Result};
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = guests)]
pub struct Guest {
    pub id: Uuid,
    pub name: String,
    pub email: String,
    pub merged_into: Option<Uuid>,
}

pub struct Guests {
    pub pool: Pool,
}

impl Guests {
    /// One guest per address: a guest who returns is found again.
    #[advisory_lock(
        key = EmailLock { address: email.to_owned() },
        conn = self.pool.get().await?,
        wait = "5s",
        queue = 32
    )]
    pub async fn register(&self, name: &str, email: &str) -> Result<GuestId> {
        register(conn, name, &email.trim().to_ascii_lowercase()).await
    }

    /// Rewrites a guest's name.
    #[advisory_lock(key = GuestLock { guest }, conn = self.pool.get().await?, wait = "5s")]
    pub async fn rename(&self, guest: GuestId, name: &str) -> Result<()> {
        let changed = diesel::update(guests::table.find(guest.0))
            .set(guests::name.eq(name))
            .execute(conn)
            .await?;
        if changed == 0 {
            return Err(Refusal::NotFound.into());
        }
        Ok(())
    }
}

async fn register<C: Connection>(conn: &mut C, name: &str, email: &str) -> Result<GuestId> {
    let found = guests::table
        .filter(guests::email.eq(email))
        .filter(guests::merged_into.is_null())
        .select(guests::id);
    if let Some(id) = found.first::<Uuid>(conn).await.optional()? {
        return Ok(GuestId(id));
    }
    let id = Uuid::new_v4();
    diesel::insert_into(guests::table)
        .values((
            guests::id.eq(id),
            guests::name.eq(name),
            guests::email.eq(email),
        ))
        .execute(conn)
        .await?;
    Ok(GuestId(id))
}

/// Two records of one person become one, with all their stays.
#[advisory_lock(
    keys = [GuestLock { guest: kept }, GuestLock { guest: gone }],
    wait = "5s",
    max_hold = "20s"
)]
pub async fn merge(conn: &mut AsyncPgConnection, kept: GuestId, gone: GuestId) -> Result<usize> {
    if kept == gone {
        return Err(Refusal::Invalid.into());
    }
    let is_there = guests::table
        .find(kept.0)
        .filter(guests::merged_into.is_null())
        .count();
    if is_there.get_result::<i64>(conn).await? == 0 {
        return Err(Refusal::WrongState.into());
    }
    diesel::update(guests::table.find(gone.0))
        .set(guests::merged_into.eq(kept.0))
        .execute(conn)
        .await?;
    let stays = bookings::table.filter(bookings::guest_id.eq(gone.0));
    let moved = diesel::update(stays)
        .set(bookings::guest_id.eq(kept.0))
        .execute(conn)
        .await?;
    Ok(moved)
}

pub async fn find<C: Connection>(conn: &mut C, guest: GuestId) -> Result<Guest> {
    let found = guests::table.find(guest.0).select(Guest::as_select());
    Ok(found.first(conn).await?)
}
