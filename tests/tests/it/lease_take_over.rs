//! A lease is taken over before it expires, by a caller that has its token.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Error, Lease, Leases, Request, Table};
use advisory_tests::bookings::execute;
use advisory_tests::leases::{database, key};
use advisory_tests::{Database, pid_of};
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::future::pending;
use std::time::Duration;

async fn fence(conn: &mut AsyncPgConnection, lease: &Lease) -> Result<(), Error> {
    conn.transaction(async |conn| lease.fence(conn).await).await
}

#[tokio::test]
async fn the_former_holder_can_do_nothing_more() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let ttl = Duration::from_secs(60);
    let old = table.acquire(&mut a, key("k").ttl(ttl)).await.unwrap();
    let seen = table.find(&mut b, key("k")).await.unwrap().unwrap();
    let taken = table
        .take_over(&mut b, key("k").data("b"), seen.token)
        .await;
    let new = taken.unwrap().expect("its token is current");
    assert!(new.token() > old.token() && new.is_held());
    let row = table.find(&mut b, key("k")).await.unwrap().unwrap();
    assert_eq!((row.token, row.data.as_deref()), (new.token(), Some("b")));
    let refused = fence(&mut a, &old).await;
    assert!(matches!(refused, Err(Error::Lost { .. })), "{refused:?}");
    fence(&mut b, &new).await.unwrap();
    assert!(!table.renew(&mut a, &old, ttl).await.unwrap());
    assert!(!table.release(&mut a, &old).await.unwrap());
    assert!(table.renew(&mut b, &new, ttl).await.unwrap());
}

#[tokio::test]
async fn an_operator_frees_a_key_without_its_text() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let (table, hour) = (Table::new(), Duration::from_secs(3600));
    let old = table.acquire(&mut a, key("k").ttl(hour)).await.unwrap();
    let row = table.list(&mut b).await.unwrap().pop().unwrap();
    let undone: Result<(), Error> = b
        .transaction(async |conn| {
            assert!(table.free(conn, &row).await?);
            Err(DieselError::RollbackTransaction.into())
        })
        .await;
    undone.unwrap_err();
    assert!(table.renew(&mut a, &old, hour).await.unwrap());
    assert!(table.free(&mut b, &row).await.unwrap());
    // A server's clock that is set back makes it valid again, and a renewal of the former holder is
    // refused all the same.
    db.run("UPDATE advisory_lease SET expires_at = clock_timestamp() + interval '1 hour'")
        .await;
    assert!(!table.renew(&mut a, &old, hour).await.unwrap());
    let refused = fence(&mut a, &old).await;
    assert!(matches!(refused, Err(Error::Lost { .. })), "{refused:?}");
    advisory_tests::leases::expire(&db).await;
    assert!(!table.free(&mut b, &row).await.unwrap(), "it is free");
    let new = table.acquire(&mut a, key("k").ttl(hour)).await.unwrap();
    assert!(new.token() > old.token());
    assert!(!table.free(&mut b, &row).await.unwrap(), "another's");
    assert!(table.keep(&mut a, &new, hour).await.unwrap());
    let done = table.list(&mut b).await.unwrap().pop().unwrap();
    assert!(done.is_done);
    let blocking = advisory_runtime::blocking::lease::Table::from(table);
    assert!(blocking.free(&mut db.establish(), &done).unwrap());
    assert_eq!(blocking.list(&mut db.establish()).unwrap().len(), 0);
}

#[tokio::test]
async fn another_token_takes_nothing_over() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let first = table.acquire(&mut a, key("k")).await.unwrap();
    table.release(&mut a, &first).await.unwrap();
    let second = table.acquire(&mut a, key("k")).await.unwrap();
    let stale = table.take_over(&mut b, key("k"), first.token()).await;
    assert!(stale.unwrap().is_none());
    let other = table.take_over(&mut b, key("free"), second.token()).await;
    assert!(other.unwrap().is_none(), "the key has no row");
    fence(&mut a, &second).await.unwrap();
    let hour = Duration::from_secs(3600);
    assert!(table.keep(&mut a, &second, hour).await.unwrap());
    let done = table.take_over(&mut b, key("k"), second.token()).await;
    assert!(done.unwrap().is_none(), "its work is done");
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 1);
}

#[tokio::test]
async fn one_of_two_takes_a_lease_over() {
    let db = database().await;
    let (mut a, mut b, mut c) = (db.connect().await, db.connect().await, db.connect().await);
    let table = Table::new();
    for _ in 0..20 {
        let old = table.acquire(&mut a, key("k")).await.unwrap();
        let (one, other) = tokio::join!(
            table.take_over(&mut b, key("k"), old.token()),
            table.take_over(&mut c, key("k"), old.token()),
        );
        let taken: Vec<Lease> = [one, other]
            .into_iter()
            .filter_map(Result::unwrap)
            .collect();
        let [new] = &taken[..] else {
            panic!("{taken:?}")
        };
        assert!(new.token() > old.token());
        assert!(table.release(&mut a, new).await.unwrap());
    }
}

/// A renewal does not wait for a fenced write; a take-over waits for its commit.
#[tokio::test]
async fn a_take_over_waits_for_an_open_fenced_write() {
    let db = database().await;
    db.run("CREATE TABLE written (token bigint)").await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let old = table.acquire(&mut a, key("k")).await.unwrap();
    let token = old.token();
    let pid = pid_of(&mut b).await;
    let waiting = format!(
        "SELECT query FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type IS DISTINCT FROM 'Lock'"
    );
    let (mut free, mut takes) = (Some(b), None);
    let written = a
        .transaction(async |conn| {
            old.fence(conn).await?;
            let mut b = free.take().expect("it runs once");
            takes = Some(tokio::spawn(async move {
                Table::new().take_over(&mut b, key("k"), token).await
            }));
            db.until_empty(Duration::from_secs(30), "its wait", &waiting)
                .await;
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

#[tokio::test]
async fn a_body_whose_lease_is_taken_over_is_dropped() {
    let db = database().await;
    let leases = Leases::new(db.deadpool(2));
    let request = Request::text("k").renew(Duration::from_millis(50));
    let mut held = leases.acquire(request).await.unwrap();
    let token = held.lease().token();
    let new = Table::new()
        .take_over(&mut db.connect().await, key("k"), token)
        .await;
    let new = new.unwrap().expect("its token is current");
    let run = held.run(pending::<()>()).await;
    assert!(matches!(run, Err(Error::Lost { .. })), "{run:?}");
    let finished = held.finish(Ok::<_, Error>(())).await;
    assert!(matches!(finished, Err(Error::Lost { .. })), "{finished:?}");
    assert!(new.is_held());
    let row = Table::new().find(&mut db.connect().await, key("k")).await;
    assert_eq!(row.unwrap().expect("it is held").token, new.token());
}

/// The sequence is behind the key's token, and is moved without a setting that would outlast the
/// take-over.
#[tokio::test]
async fn a_take_over_leaves_the_settings_of_a_test_transaction() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    conn.begin_test_transaction().await.unwrap();
    table.acquire(&mut conn, key("k")).await.unwrap();
    execute(&mut conn, "UPDATE advisory_lease SET token = token + 5000")
        .await
        .unwrap();
    let seen = table.find(&mut conn, key("k")).await.unwrap().unwrap();
    let taken = table.take_over(&mut conn, key("k"), seen.token).await;
    let new = taken.unwrap().expect("its token is current");
    assert_eq!(new.token().get(), seen.token.get() + 1);
    execute(
        &mut conn,
        "SELECT 1 / (current_setting('lock_timeout') = '0')::int",
    )
    .await
    .unwrap();
    let other = table.acquire(&mut conn, key("other")).await.unwrap();
    assert!(other.token() > new.token());
}

/// Under REPEATABLE READ a row that was changed meanwhile is an error, and the holder's renewal
/// changes it often.
#[tokio::test]
async fn a_take_over_is_repeated_after_a_renewal() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let old = table.acquire(&mut a, key("k")).await.unwrap();
    execute(
        &mut b,
        "SET default_transaction_isolation = 'repeatable read'",
    )
    .await
    .unwrap();
    let pid = pid_of(&mut b).await;
    execute(&mut a, "BEGIN").await.unwrap();
    execute(&mut a, "UPDATE advisory_lease SET data = 'renewed'")
        .await
        .unwrap();
    let waits = format!(
        "SELECT 'no' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock')"
    );
    let renewed = async {
        db.until_empty(Duration::from_secs(30), "the take-over waits", &waits)
            .await;
        execute(&mut a, "COMMIT").await.unwrap();
    };
    let (taken, ()) = tokio::join!(table.take_over(&mut b, key("k"), old.token()), renewed);
    let new = taken.unwrap().expect("its token is current");
    assert!(new.token() > old.token());
}

#[tokio::test]
async fn a_take_over_without_a_table_says_so() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let table = Table::new().named("no_lease").unwrap();
    let other = database().await;
    let mut holder = other.connect().await;
    let token = Table::new().acquire(&mut holder, key("k")).await.unwrap();
    let refused = table.take_over(&mut conn, key("k"), token.token()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::MissingTable { .. }), "{error:?}");
}
