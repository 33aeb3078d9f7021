//! A lease is taken over before it expires, by a caller that has its token.

use advisory_runtime::lease::{Error, Lease, Leases, Request, Table};
use advisory_tests::bookings::execute;
use advisory_tests::futures::spawn;
use advisory_tests::leases::{
    BRIEF, Events, HOUR, database, expire, fence, finish, in_transaction, key, leases_at, once,
    orphan, until_over, until_renewed,
};
use advisory_tests::statements::run;
use advisory_tests::{Database, assert_matches, pid_of};
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use std::future::pending;

#[tokio::test]
async fn the_former_holder_can_do_nothing_more() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let events = Events::default();
    let leases = leases_at(db.url(), 2).observe(events.observer());
    let mut held = leases.acquire(key("k").renew(BRIEF)).await.unwrap();
    let old = held.lease().clone();
    let seen = table.find(&mut b, key("k")).await.unwrap().unwrap();
    let taken = table
        .take_over(&mut b, key("k").data("b"), seen.token)
        .await;
    let new = taken.unwrap().expect("its token is current");
    assert!(new.token() > old.token() && new.is_held());
    // Its body is dropped.
    assert_matches!(held.run(pending::<()>()).await, Err(Error::Lost { .. }));
    assert_matches!(fence(&mut a, &old).await, Err(Error::Lost { .. }));
    fence(&mut b, &new).await.unwrap();
    assert!(!table.release(&mut a, &old).await.unwrap());
    assert_matches!(finish(held).await, Err(Error::Lost { .. }));
    // Its release may be tried all the same, and on a busy machine without an answer.
    let mut events = events.names();
    events.retain(|event| event != "EndFailed");
    assert_eq!(events.last().unwrap(), "Lost", "{events:?}");
    assert!(new.is_held());
    let row = table.find(&mut b, key("k")).await.unwrap().unwrap();
    assert_eq!((row.token, row.data.as_deref()), (new.token(), Some("b")));
}

#[tokio::test]
async fn an_operator_frees_a_key_without_its_text() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let (table, leases) = (Table::new(), leases_at(db.url(), 1));
    let held = leases.acquire(key("k").ttl(HOUR).renew(BRIEF)).await;
    let held = held.unwrap();
    let old = held.lease();
    let row = table.list(&mut b).await.unwrap().pop().unwrap();
    let undone: Result<(), Error> = b
        .transaction(async |conn| {
            assert!(table.free(conn, &row).await?);
            Err(DieselError::RollbackTransaction.into())
        })
        .await;
    undone.unwrap_err();
    until_renewed(old).await;
    // A server's clock that is set back makes it valid again, and a renewal of the former holder is
    // refused all the same.
    let freed = b
        .transaction(async |conn| {
            let freed = table.free(conn, &row).await;
            let set_back =
                "UPDATE advisory_lease SET expires_at = clock_timestamp() + interval '1 hour'";
            execute(conn, set_back).await?;
            freed
        })
        .await;
    assert!(freed.unwrap());
    until_over(old).await;
    assert_matches!(fence(&mut a, old).await, Err(Error::Lost { .. }));
    expire(&db).await;
    assert!(!table.free(&mut b, &row).await.unwrap(), "it is free");
    let new = leases.acquire(key("k").keep(HOUR)).await.unwrap();
    assert!(new.lease().token() > old.token());
    assert!(!table.free(&mut b, &row).await.unwrap(), "another's");
    finish(new).await.unwrap();
    let done = table.list(&mut b).await.unwrap().pop().unwrap();
    assert!(done.is_done);
    assert!(table.free(&mut b, &done).await.unwrap());
    assert_eq!(table.list(&mut b).await.unwrap(), []);
}

#[tokio::test]
async fn another_token_takes_nothing_over() {
    let db = database().await;
    let (mut conn, table) = (db.connect().await, Table::new());
    let leases = leases_at(db.url(), 1);
    let first = once(&leases, key("k")).await.unwrap();
    let held = leases.acquire(key("k").keep(HOUR)).await.unwrap();
    let second = held.lease().clone();
    let stale = table.take_over(&mut conn, key("k"), first).await;
    assert!(stale.unwrap().is_none());
    let other = table.take_over(&mut conn, key("free"), second.token());
    assert!(other.await.unwrap().is_none(), "the key has no row");
    fence(&mut conn, &second).await.unwrap();
    finish(held).await.unwrap();
    let done = table.take_over(&mut conn, key("k"), second.token()).await;
    assert!(done.unwrap().is_none(), "its work is done");
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 1);
}

#[tokio::test]
async fn one_of_two_takes_a_lease_over() {
    let db = database().await;
    let (mut b, mut c) = (db.connect().await, db.connect().await);
    let (table, leases) = (Table::new(), leases_at(db.url(), 1));
    for _ in 0..20 {
        let old = leases.acquire(key("k")).await.unwrap();
        let token = old.lease().token();
        let (one, other) = tokio::join!(
            table.take_over(&mut b, key("k"), token),
            table.take_over(&mut c, key("k"), token),
        );
        let winners: Vec<Lease> = [one, other]
            .into_iter()
            .filter_map(Result::unwrap)
            .collect();
        let [new] = &winners[..] else {
            panic!("{winners:?}")
        };
        assert!(new.token() > token);
        assert!(table.release(&mut b, new).await.unwrap());
    }
}

/// A renewal does not wait for a fenced write; a take-over waits for its commit.
#[tokio::test]
async fn a_take_over_waits_for_an_open_fenced_write() {
    let db = database().await;
    db.run("CREATE TABLE written (token bigint)").await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let old = orphan(db.url(), &Table::new(), key("k")).await;
    let (token, pid) = (old.token(), pid_of(&mut b).await);
    let (mut free, mut takes) = (Some(b), None);
    let written = a
        .transaction(async |conn| {
            old.fence(conn).await?;
            let mut b = free.take().expect("it runs once");
            takes = Some(spawn(async move {
                Table::new().take_over(&mut b, key("k"), token).await
            }));
            db.until_blocked(pid).await;
            conn.batch_execute("INSERT INTO written VALUES (1)").await?;
            Ok::<_, Error>(())
        })
        .await;
    written.unwrap();
    let new = takes.expect("it was spawned").await.unwrap().unwrap();
    assert!(new.expect("its token was current").token() > token);
    assert_eq!(db.count("SELECT count(*) FROM written").await, 1);
    assert!(fence(&mut a, &old).await.is_err());
}

/// The sequence is behind the key's token, and is moved without a setting that would outlast the
/// take-over.
#[tokio::test]
async fn a_take_over_leaves_the_settings_of_a_test_transaction() {
    let db = database().await;
    let pool = in_transaction(db.url(), true);
    let (table, leases) = (Table::new(), Leases::new(pool.clone()));
    let _held = leases.acquire(key("k")).await.unwrap();
    let mut conn = pool.get().await.unwrap();
    let behind = "UPDATE advisory_lease SET token = token + 5000";
    execute(&mut conn, behind).await.unwrap();
    let seen = table.find(&mut conn, key("k")).await.unwrap().unwrap();
    let taken = table.take_over(&mut conn, key("k"), seen.token).await;
    let new = taken.unwrap().expect("its token is current");
    assert_eq!(new.token().get(), seen.token.get() + 1);
    let unset = "SELECT 1 / (current_setting('lock_timeout') = '0')::int";
    execute(&mut conn, unset).await.unwrap();
    drop(conn);
    assert!(once(&leases, key("other")).await.unwrap() > new.token());
}

/// Under REPEATABLE READ a row that was changed meanwhile is an error, and the holder's renewal
/// changes it often.
#[tokio::test]
async fn a_take_over_is_repeated_after_a_renewal() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let (table, old) = (
        Table::new(),
        orphan(db.url(), &Table::new(), key("k")).await,
    );
    let level = "SET default_transaction_isolation = 'repeatable read'";
    execute(&mut b, level).await.unwrap();
    let pid = pid_of(&mut b).await;
    run(&mut a, "BEGIN; UPDATE advisory_lease SET data = 'renewed'").await;
    let renewed = async {
        db.until_blocked(pid).await;
        execute(&mut a, "COMMIT").await.unwrap();
    };
    let (taken, ()) = tokio::join!(table.take_over(&mut b, key("k"), old.token()), renewed);
    let new = taken.unwrap().expect("its token is current");
    assert!(new.token() > old.token());
}

#[tokio::test]
async fn a_take_over_without_a_table_says_so() {
    let (db, other) = (Database::create().await, database().await);
    let mut conn = db.connect().await;
    let token = once(&leases_at(other.url(), 1), Request::text("k")).await;
    let refused = Table::new()
        .take_over(&mut conn, key("k"), token.unwrap())
        .await;
    assert_matches!(refused, Err(Error::MissingTable { .. }));
}
