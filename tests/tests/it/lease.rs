//! The lease table, one connection and one statement at a time: who is granted a key, and what only
//! the holder may do.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Error, Request, Table};
use advisory_runtime::{LockKey, Wait};
use advisory_tests::bookings::in_transaction;
use advisory_tests::leases::{database, expire, key};
use advisory_tests::{Database, Proxy, pid_of};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

#[derive(LockKey)]
#[lock_key("leased-webhook:<id>")]
struct Webhook<'a> {
    id: &'a str,
}

/// Waits until a backend has tried to acquire a lease.
async fn until_tried(db: &Database, pid: i32) {
    let missing = format!(
        "SELECT query FROM pg_stat_activity WHERE pid = {pid} AND query NOT LIKE 'WITH free AS%'"
    );
    db.until_empty(Duration::from_secs(30), "a try", &missing)
        .await;
}

#[tokio::test]
async fn a_free_key_is_granted_and_a_held_one_is_not() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let lease = table.acquire(&mut a, key("k")).await.unwrap();
    assert!(lease.is_held());
    let error = table.acquire(&mut b, key("k")).await.unwrap_err();
    assert!(error.is_held(), "{error:?}");
    assert!(error.to_string().contains("lease "), "{error}");
    assert!(
        !error.to_string().contains("`k`"),
        "the key's text: {error}"
    );
    table.acquire(&mut b, key("other")).await.unwrap();
}

#[tokio::test]
async fn a_released_key_is_free_and_its_tokens_grow() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let mut last = None;
    for _ in 0..5 {
        let lease = table.acquire(&mut conn, key("k")).await.unwrap();
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        assert!(table.release(&mut conn, &lease).await.unwrap());
        assert!(!lease.is_held());
        assert!(table.release(&mut conn, &lease).await.unwrap(), "twice");
        assert!(!table.holds(&mut conn, &lease).await.unwrap());
    }
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 1);
}

#[tokio::test]
async fn an_expired_lease_is_taken_over_and_its_holder_can_do_nothing() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let old = table.acquire(&mut a, key("k")).await.unwrap();
    expire(&db).await;
    let new = table.acquire(&mut b, key("k")).await.unwrap();
    assert!(new.token() > old.token());
    let ttl = Duration::from_secs(60);
    assert!(!table.renew(&mut a, &old, ttl).await.unwrap());
    assert!(!old.is_held());
    assert!(!table.keep(&mut a, &old, ttl).await.unwrap());
    assert!(!table.release(&mut a, &old).await.unwrap());
    assert!(!table.holds(&mut a, &old).await.unwrap());
    assert!(table.holds(&mut b, &new).await.unwrap());
    assert!(table.renew(&mut b, &new, ttl).await.unwrap());
}

#[tokio::test]
async fn an_expired_lease_is_not_renewed_even_if_still_free() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    expire(&db).await;
    assert!(
        !table
            .renew(&mut conn, &lease, Duration::from_secs(60))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_lease_lasts_for_its_ttl_by_the_servers_clock() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let request = key("k").ttl(Duration::from_millis(30_500));
    let lease = table.acquire(&mut conn, request).await.unwrap();
    let lasts = "SELECT extract(epoch FROM expires_at - acquired_at) * 1000 FROM advisory_lease";
    let lasts = format!("SELECT round(({lasts}))::int8");
    // The server reads its clock for each of the two columns.
    let granted = db.count(&lasts).await;
    assert!((30_500..40_500).contains(&granted), "{granted}");
    // A renewal never shortens it.
    assert!(
        table
            .renew(&mut conn, &lease, Duration::from_millis(1))
            .await
            .unwrap()
    );
    assert_eq!(db.count(&lasts).await, granted);
    assert!(
        table
            .renew(&mut conn, &lease, Duration::from_secs(90))
            .await
            .unwrap()
    );
    assert!(db.count(&lasts).await >= 90_000);
    assert!(lease.remaining() > Duration::from_secs(80));
}

#[tokio::test]
async fn who_waits_is_granted_the_key_once_it_is_free() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let lease = table.acquire(&mut a, key("k")).await.unwrap();
    let (pid, token) = (pid_of(&mut b).await, lease.token());
    let waiting = tokio::spawn({
        let table = table.clone();
        async move {
            table
                .acquire(&mut b, Request::text("k").wait(Wait::Forever))
                .await
        }
    });
    until_tried(&db, pid).await;
    table.release(&mut a, &lease).await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > token);
    assert!(next.waited() > Duration::ZERO);
}

#[tokio::test]
async fn a_wait_ends_with_its_budget() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let _lease = table.acquire(&mut a, key("k")).await.unwrap();
    let request = Request::text("k").wait(Duration::from_millis(60));
    let error = table.acquire(&mut b, request).await.unwrap_err();
    let Error::Held { waited, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(*waited >= Duration::from_millis(60), "{waited:?}");
    // Without a `wait` the session's timeout applies.
    b.batch_execute("SET lock_timeout = '50ms'").await.unwrap();
    let error = table.acquire(&mut b, Request::text("k")).await.unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error:?}");
}

#[tokio::test]
async fn a_done_key_stays_taken_and_is_nobodys() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new().with_text();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    assert!(
        table
            .keep(&mut conn, &lease, Duration::from_secs(3600))
            .await
            .unwrap()
    );
    assert!(!lease.is_held());
    let row = table
        .find(&mut conn, Request::text("k"))
        .await
        .unwrap()
        .unwrap();
    assert!(row.remaining > Duration::from_secs(3500), "{row:?}");
    assert_eq!(row.key, None, "the text is erased");
    assert!(row.is_done);
    assert!(
        table
            .acquire(&mut conn, key("k"))
            .await
            .unwrap_err()
            .is_done()
    );
}

#[tokio::test]
async fn find_and_list_show_holder_token_and_times() {
    let db = database().await;
    let mut conn = db.connect().await;
    let one = Table::new().with_text().held_by("worker é 1").unwrap();
    let two = Table::new().held_by("worker 2").unwrap();
    assert_eq!(
        one.find(&mut conn, Webhook { id: "a" }).await.unwrap(),
        None
    );
    let lease = one
        .acquire(
            &mut conn,
            Request::new(Webhook { id: "ä:1" }).wait(Wait::Never),
        )
        .await
        .unwrap();
    two.acquire(&mut conn, key("other").ttl(Duration::from_secs(1000)))
        .await
        .unwrap();
    let row = two
        .find(&mut conn, Webhook { id: "ä:1" })
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.holder, "worker é 1");
    assert_eq!(row.key.as_deref(), Some("leased-webhook:ä%3A1"));
    assert_eq!(row.token, lease.token());
    assert!(row.remaining > Duration::from_secs(50) && row.remaining <= Duration::from_secs(60));
    let lasts = row.expires_at.duration_since(row.acquired_at).unwrap();
    assert!((60_000..70_000).contains(&lasts.as_millis()), "{lasts:?}");
    let all = one.list(&mut conn).await.unwrap();
    let holders: Vec<_> = all.iter().map(|row| row.holder.as_str()).collect();
    assert_eq!(holders, ["worker é 1", "worker 2"]);
    assert_eq!(all[1].key, None);
    expire(&db).await;
    assert_eq!(one.list(&mut conn).await.unwrap(), []);
    let found = one.find(&mut conn, Webhook { id: "ä:1" }).await.unwrap();
    assert_eq!(found, None);
    assert_eq!(db.count("SELECT count(key) FROM advisory_lease").await, 1);
    assert_eq!(one.sweep(&mut conn).await.unwrap(), 2);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}

/// One of sixteen grants removes expired rows, and is a statement of its own.
async fn prepare_both_grants(conn: &mut AsyncPgConnection, table: &Table) {
    use diesel::sql_types::BigInt;
    use diesel_async::RunQueryDsl;
    for sweeps in ["", "NOT"] {
        let sql = format!(
            "(SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%INSERT INTO %advisory_lease%' AND statement NOT LIKE '%pg_prepared%' AND statement {sweeps} LIKE '%DELETE FROM%')"
        );
        loop {
            let count = diesel::select(diesel::dsl::sql::<BigInt>(&sql));
            if count.get_result::<i64>(conn).await.unwrap() > 0 {
                break;
            }
            let lease = table.acquire(conn, key("k")).await.unwrap();
            table.release(conn, &lease).await.unwrap();
        }
    }
}

#[tokio::test]
async fn each_call_is_one_round_trip() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let table = Table::new();
    prepare_both_grants(&mut conn, &table).await;
    // Once to prepare each of the other statements.
    for round in 0..2 {
        let counted = |what: &str| {
            if round == 1 {
                assert_eq!(proxy.round_trips(), 1, "{what}: {:?}", proxy.queries());
            }
            proxy.reset();
        };
        proxy.reset();
        let lease = table.acquire(&mut conn, key("k")).await.unwrap();
        counted("acquire");
        table.acquire(&mut conn, key("k")).await.unwrap_err();
        counted("a refused acquire");
        table
            .renew(&mut conn, &lease, Duration::from_secs(60))
            .await
            .unwrap();
        counted("renew");
        table.holds(&mut conn, &lease).await.unwrap();
        counted("holds");
        table.find(&mut conn, Request::text("k")).await.unwrap();
        counted("find");
        table.list(&mut conn).await.unwrap();
        counted("list");
        let fenced: Result<(), Error> = in_transaction(&mut conn, async |conn| {
            lease.fence(conn).await?;
            proxy.reset();
            lease.fence(conn).await?;
            counted("fence");
            Ok(())
        })
        .await;
        fenced.unwrap();
        proxy.reset();
        table.release(&mut conn, &lease).await.unwrap();
        counted("release");
    }
}

#[tokio::test]
async fn a_keep_that_waits_for_a_row_counts_from_after_the_wait() {
    let db = database().await;
    let (mut a, mut admin) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let lease = table.acquire(&mut a, key("k")).await.unwrap();
    admin
        .batch_execute("BEGIN; SELECT FROM advisory_lease FOR UPDATE")
        .await
        .unwrap();
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    let waiting = tokio::spawn({
        let (table, lease) = (table.clone(), lease.clone());
        let hour = Duration::from_secs(3600);
        async move { table.keep(&mut conn, &lease, hour).await }
    });
    // This test is about the wait: time has to pass in it.
    let short = format!(
        "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} \
             AND wait_event_type = 'Lock' AND query_start + interval '300 ms' < pg_catalog.clock_timestamp())"
    );
    db.until_empty(Duration::from_secs(30), "a keep that has waited", &short)
        .await;
    let before = db
        .count("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8")
        .await;
    admin.batch_execute("COMMIT").await.unwrap();
    assert!(waiting.await.unwrap().unwrap());
    let until = db
        .count("SELECT (extract(epoch FROM expires_at) * 1000)::int8 FROM advisory_lease")
        .await;
    assert!(until >= before + 3_600_000, "{until} {before}");
}

#[tokio::test]
async fn no_time_is_too_long_for_a_clear_answer() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    for time in [Duration::MAX, Duration::from_secs(1 << 42)] {
        let granted = table
            .acquire(&mut conn, key("other").ttl(time))
            .await
            .unwrap_err();
        let kept = table.keep(&mut conn, &lease, time).await.unwrap_err();
        for error in [granted, kept] {
            assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        }
    }
    // It is unchanged, here and on the server.
    assert!(lease.is_held() && table.holds(&mut conn, &lease).await.unwrap());
}
