//! What leases send is plain SQL that means the same when it is qualified, and names nothing that a
//! `search_path` could replace.

use advisory_runtime::lease::{Leases, Table};
use advisory_runtime::{Pool, monitor};
use advisory_tests::bookings::in_transaction;
use advisory_tests::leases::{HOUR, database, expire, finish, key, once};
use advisory_tests::monitor::until_waiters;
use advisory_tests::pauses::pause;
use advisory_tests::statements::{Sent, assert_qualified, prepared};
use advisory_tests::{Database, Proxy};
use diesel_async::RunQueryDsl;
use std::time::Duration;

#[tokio::test]
async fn statements_of_leases_mean_the_same_when_they_are_qualified() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let pool = Database::deadpool_at(proxy.url(), 1);
    let (leases, table) = (Leases::new(pool.clone()), Table::new());
    // Behind a row, so that the sequence is moved.
    once(&leases, key("k")).await.unwrap();
    db.run("UPDATE advisory_lease SET token = token + 70").await;
    // A renewal whose answer is late by an eighth of this closes the connection, with its
    // statements.
    let renewed = key("k").renew(Duration::from_secs(1)).keep(HOUR);
    let mut guard = leases.acquire(renewed).await.unwrap();
    let lease = guard.lease().clone();
    // A row that is being removed.
    once(&leases, key("swept")).await.unwrap();
    db.run("BEGIN; DELETE FROM advisory_lease WHERE expires_at < now()")
        .await;
    let (swept, ()) = tokio::join!(leases.acquire(key("swept")), async {
        until_waiters(&db, 1).await;
        db.run("COMMIT").await;
    });
    let swept = swept.unwrap();
    {
        let mut conn = Pool::connection(&pool).await.unwrap();
        let conn = &mut conn;
        let row = table.find(conn, key("swept")).await.unwrap().unwrap();
        let taken = table.take_over(conn, key("swept"), row.token).await;
        let taken = taken.unwrap().expect("its token is current");
        assert!(table.set_data(conn, &taken, Some("here")).await.unwrap());
        let row = table.find(conn, key("swept")).await.unwrap().unwrap();
        assert!(table.free(conn, &row).await.unwrap());
        assert_eq!(table.list(conn).await.unwrap().len(), 1);
        table.sweep(conn).await.unwrap();
        let names = monitor::Names::none();
        monitor::leases(conn, &table, &names).await.unwrap();
        let report = diesel::select(lease.is_current())
            .get_result::<bool>(conn)
            .await;
        assert_eq!(report, Ok(true));
        in_transaction(conn, async |conn| {
            lease.fence(conn).await?;
            lease.complete(conn).await
        })
        .await
        .unwrap();
    }
    // The keeper asks how the transaction has ended.
    let waited = guard.run(async {
        while !format!("{lease:?}").contains("phase: Ended") {
            pause().await;
        }
    });
    waited.await.unwrap();
    finish(guard).await.unwrap();
    drop(swept);
    expire(&db).await;
    let mut sweeps = 0;
    while sweeps == 0 {
        let guard = leases.acquire(key("k").keep(HOUR)).await.unwrap();
        assert!(leases.holds(guard.lease()).await.unwrap());
        finish(guard).await.unwrap();
        expire(&db).await;
        let mut conn = Pool::connection(&pool).await.unwrap();
        let sent = prepared(&mut conn, "advisory_lease").await;
        sweeps = sent
            .iter()
            .filter(|sent| sent.statement.contains("swept AS"))
            .count();
    }
    let mut sent = {
        let mut conn = Pool::connection(&pool).await.unwrap();
        prepared(&mut conn, "advisory_lease").await
    };
    let moved = proxy
        .queries()
        .into_iter()
        .find(|sql| sql.contains("setval"));
    let moved = moved.expect("the sequence was moved");
    let (_, moved) = moved.rsplit_once(';').unwrap();
    sent.push(Sent {
        statement: moved.to_owned(),
        types: String::new(),
    });
    assert!(sent.len() > 15, "{}", sent.len());
    assert_qualified(&db, &sent).await;
}
