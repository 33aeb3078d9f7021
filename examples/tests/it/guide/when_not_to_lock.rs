use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

crate::guide::runs_the_page!("when-not-to-lock", "when_not_to_lock.rs");

diesel::table! {
    booking (id) {
        id -> BigInt,
        room -> BigInt, // UNIQUE (room, day)
        day -> Integer,
    }
}

/// Whether the room was free.
async fn book(conn: &mut AsyncPgConnection, room: i64, day: i32) -> QueryResult<bool> {
    let booked = diesel::insert_into(booking::table)
        .values((booking::room.eq(room), booking::day.eq(day)))
        .on_conflict((booking::room, booking::day))
        .do_nothing()
        .execute(conn)
        .await?;
    Ok(booked == 1)
}

diesel::table! { account (id) { id -> BigInt, balance -> BigInt } }

async fn withdraw(conn: &mut AsyncPgConnection, id: i64, amount: i64) -> QueryResult<bool> {
    conn.transaction(async |conn| {
        let row = account::table.find(id);
        let balance: i64 = row
            .select(account::balance)
            .for_no_key_update()
            .first(conn)
            .await?;
        if balance < amount {
            return Ok(false);
        }
        diesel::update(row)
            .set(account::balance.eq(balance - amount))
            .execute(conn)
            .await?;
        Ok(true)
    })
    .await
}

#[tokio::test]
async fn a_constraint_and_a_row_need_no_lock() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE booking (id bigserial PRIMARY KEY, room int8, day int4, UNIQUE (room, day));
         CREATE TABLE account (id int8 PRIMARY KEY, balance int8); INSERT INTO account VALUES (7, 100)",
    )
    .await;
    let (mut one, mut other) = (db.connect().await, db.connect().await);
    let booked = tokio::join!(book(&mut one, 1, 1), book(&mut other, 1, 1));
    assert_ne!(booked.0.unwrap(), booked.1.unwrap());
    let paid = tokio::join!(withdraw(&mut one, 7, 60), withdraw(&mut other, 7, 60));
    assert_ne!(paid.0.unwrap(), paid.1.unwrap());
    assert_eq!(db.count("SELECT balance FROM account").await, 40);
}
