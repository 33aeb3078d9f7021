use advisory_runtime::{Error, LockKey, Request, advisory_lock, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;

crate::guide::runs_the_page!("nesting", "nesting.rs");

#[advisory_lock(key = "room:<room>", name = "room")]
async fn book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<bool> {
    let insert = diesel::sql_query("INSERT INTO booking VALUES ($1) ON CONFLICT DO NOTHING");
    let booked = insert.bind::<BigInt, _>(room).execute(conn).await?;
    Ok(booked == 1)
}

/// Both rooms or none; both locks are held until the commit.
async fn book_two(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    conn.transaction(async |conn| {
        let both = book(conn, 1).await? && book(conn, 2).await?;
        if both {
            Ok(())
        } else {
            Err(RollbackTransaction)
        }
    })
    .await
}

#[derive(LockKey)]
#[lock_key("account:<id>", name = "account")]
struct AccountLock {
    id: i64,
}

async fn pay(conn: &mut AsyncPgConnection, invoice: i64) -> Result<(), Error> {
    conn.transaction(async |conn| {
        let id = account_of(conn, invoice).await?;
        let account = Request::new(AccountLock { id }).wait(Duration::from_secs(2));
        xact::lock(conn, account).await?;
        let balance = balance(conn, id).await?; // read under the lock
        // …
        Ok(())
    })
    .await
}

async fn account_of(_: &mut AsyncPgConnection, invoice: i64) -> QueryResult<i64> {
    Ok(invoice)
}

/// It is read under the lock.
async fn balance(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<i64> {
    use diesel::dsl::sql;
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()";
    let held: i64 = sql::<BigInt>(held).get_result(conn).await?;
    assert_eq!(held, 1, "account {id}");
    Ok(held)
}

#[tokio::test]
async fn two_rooms_are_booked_both_or_not() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8 PRIMARY KEY)").await;
    let (mut one, mut other) = (db.connect().await, db.connect().await);
    let (one, other) = tokio::join!(book_two(&mut one), book_two(&mut other));
    assert_ne!(one.is_ok(), other.is_ok());
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 2);
    let mut conn = db.connect().await;
    db.run("DELETE FROM booking WHERE room = 1").await;
    assert_eq!(book_two(&mut conn).await, Err(RollbackTransaction));
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
}

#[tokio::test]
async fn a_lock_in_the_middle_is_held_where_the_balance_is_read() {
    let db = Database::create().await;
    pay(&mut db.connect().await, 7).await.unwrap();
    db.until_no_locks().await;
}
