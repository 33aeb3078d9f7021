//! The program on the README's first screen, from `use` on.

#![allow(clippy::print_stdout, reason = "it is run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use uuid::Uuid;

diesel::table! {
    bookings (id) { id -> BigInt, tenant_id -> Uuid, date -> Date, guest -> Text }
}

/// One booking per tenant and day.
#[advisory_lock(key = "<tenant_id>:<date>", scope = "xact")]
async fn create_booking(
    conn: &mut AsyncPgConnection,
    tenant_id: Uuid,
    date: NaiveDate,
    guest: &str,
) -> QueryResult<bool> {
    let (tenant, day) = (bookings::tenant_id.eq(tenant_id), bookings::date.eq(date));
    let taken = bookings::table.filter(tenant).filter(day);
    if taken.count().get_result::<i64>(conn).await? > 0 {
        return Ok(false);
    }
    let booking = (tenant, day, bookings::guest.eq(guest));
    let insert = diesel::insert_into(bookings::table).values(booking);
    insert.execute(conn).await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("give the database's URL")?;
    let mut ann = AsyncPgConnection::establish(&url).await?;
    let mut bob = AsyncPgConnection::establish(&url).await?;
    let columns = "id bigserial PRIMARY KEY, tenant_id uuid, date date, guest text";
    let create = format!("CREATE TABLE IF NOT EXISTS bookings ({columns})");
    ann.batch_execute(&create).await?;
    let (tenant, day) = (Uuid::new_v4(), NaiveDate::default());
    let (ann, bob) = tokio::join!(
        create_booking(&mut ann, tenant, day, "Ann"),
        create_booking(&mut bob, tenant, day, "Bob"),
    );
    println!("Ann booked: {}, Bob booked: {}", ann?, bob?);
    Ok(())
}
