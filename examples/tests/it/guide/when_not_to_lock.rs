use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

crate::guide::page!("when-not-to-lock", 1);

diesel::table! { account (id) { id -> BigInt, balance -> BigInt } }

crate::guide::page!("when-not-to-lock", 2);

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
