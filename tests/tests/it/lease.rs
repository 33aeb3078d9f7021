//! Who is granted a key, for how long, and what a holder whose lease is over can do.

use advisory_runtime::lease::{Error, Leases, Request, Table};
use advisory_runtime::{LockKey, Wait};
use advisory_tests::bookings::{execute, in_transaction, run};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{
    BRIEF, Events, HOUR, Pool, database, expire, finish, key, leases_at, once, until_refused,
    until_renewed,
};
use advisory_tests::statements::names;
use advisory_tests::{Database, Proxy, assert_matches};
use std::time::Duration;

#[derive(LockKey)]
#[lock_key("leased-webhook:<id>")]
struct Webhook<'a> {
    id: &'a str,
}

#[tokio::test]
async fn a_free_key_is_granted_and_a_held_one_is_not() {
    let db = database().await;
    let leases = leases_at(db.url(), 2);
    let held = leases.acquire(key("k")).await.unwrap();
    assert!(held.lease().is_held());
    for refused in [key("k"), Request::text("k").wait(BRIEF * 3)] {
        let error = leases.acquire(refused.clone()).await.unwrap_err();
        let Error::Held { waited, .. } = &error else {
            panic!("{error:?}");
        };
        assert!(waited.is_zero() || *waited >= BRIEF * 3, "{waited:?}");
        let text = error.to_string();
        assert!(text.starts_with("lease `"), "{text}");
        assert!(!text.contains("`k`"), "the key's text: {text}");
    }
    once(&leases, key("other")).await.unwrap();
    // Without a `wait` the session's timeout applies.
    let pool = db.deadpool(1);
    let mut conn = pool.get().await.unwrap();
    run(&mut conn, "SET lock_timeout = '50ms'").await;
    drop(conn);
    assert_matches!(
        once(&Leases::new(pool), Request::text("k")).await,
        Err(Error::Held { .. })
    );
}

#[tokio::test]
async fn a_released_key_is_free_and_its_tokens_grow() {
    let db = database().await;
    let (leases, mut conn) = (leases_at(db.url(), 1), db.connect().await);
    let mut last = None;
    for _ in 0..5 {
        let held = leases.acquire(key("k")).await.unwrap();
        let lease = held.lease().clone();
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        finish(held).await.unwrap();
        assert!(!lease.is_held());
        let again = Table::new().release(&mut conn, &lease).await;
        assert!(again.unwrap(), "twice");
        assert!(!leases.holds(&lease).await.unwrap());
    }
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 1);
}

#[tokio::test]
async fn an_expired_lease_is_taken_over_and_its_holder_can_do_nothing() {
    let db = database().await;
    let (leases, mut conn) = (leases_at(db.url(), 2), db.connect().await);
    let kept = leases.acquire(key("k").keep(HOUR)).await.unwrap();
    let old = kept.lease().clone();
    expire(&db).await;
    let new = leases.acquire(key("k").renew(BRIEF)).await.unwrap();
    assert!(new.lease().token() > old.token());
    assert!(!Table::new().release(&mut conn, &old).await.unwrap());
    assert_matches!(finish(kept).await, Err(Error::Lost { .. }));
    assert!(!old.is_held() && !leases.holds(&old).await.unwrap());
    assert!(leases.holds(new.lease()).await.unwrap());
    until_renewed(new.lease()).await;
}

#[tokio::test]
async fn a_lease_lasts_for_its_ttl_by_the_servers_clock() {
    let db = database().await;
    let leases = leases_at(db.url(), 1);
    let ttl = Duration::from_millis(30_500);
    let held = leases.acquire(key("k").ttl(ttl)).await.unwrap();
    let lasts = "SELECT round((SELECT extract(epoch FROM expires_at - acquired_at) * 1000 FROM advisory_lease))::int8";
    // The server reads its clock for each of the two columns.
    let granted = db.count(lasts).await;
    assert!((30_500..40_500).contains(&granted), "{granted}");
    assert!(held.lease().remaining() <= ttl);
    finish(held).await.unwrap();
    // A renewal never shortens it.
    let held = leases.acquire(key("k").ttl(ttl).renew(BRIEF)).await;
    let held = held.unwrap();
    db.run("UPDATE advisory_lease SET expires_at = acquired_at + interval '1 hour'")
        .await;
    for _ in 0..2 {
        until_renewed(held.lease()).await;
    }
    assert_eq!(db.count(lasts).await, 3_600_000);
}

#[tokio::test]
async fn who_waits_is_granted_the_key_once_it_is_free() {
    let db = database().await;
    let (leases, mut conn) = (leases_at(db.url(), 2), db.connect().await);
    let held = leases.acquire(key("k")).await.unwrap();
    let (token, waits) = (held.lease().token(), leases.clone());
    let waiting = spawn(async move {
        let request = Request::text("k").wait(Wait::Forever);
        waits.acquire(request).await
    });
    until_refused(&mut conn).await;
    finish(held).await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.lease().token() > token);
    assert!(next.lease().waited() > Duration::ZERO);
}

#[tokio::test]
async fn find_and_list_show_holder_token_and_times() {
    let db = database().await;
    let mut conn = db.connect().await;
    let one = Table::new().with_text().held_by("worker é 1").unwrap();
    let two = Table::new().held_by("worker 2").unwrap();
    let webhook = Webhook { id: "ä:1" };
    assert_eq!(one.find(&mut conn, &webhook).await.unwrap(), None);
    let held = leases_at(db.url(), 1).table(one.clone());
    let held = held.acquire(&webhook).await.unwrap();
    let other = leases_at(db.url(), 1).table(two.clone());
    let request = key("other").ttl(Duration::from_secs(1000));
    let _other = other.acquire(request).await.unwrap();
    let row = two.find(&mut conn, &webhook).await.unwrap().unwrap();
    assert_eq!(row.holder, "worker é 1");
    assert_eq!(row.key.as_deref(), Some("leased-webhook:ä%3A1"));
    assert_eq!(row.token, held.lease().token());
    assert!(row.remaining > Duration::from_secs(50) && row.remaining <= Duration::from_secs(60));
    let lasts = row.expires_at.duration_since(row.acquired_at).unwrap();
    assert!((60_000..70_000).contains(&lasts.as_millis()), "{lasts:?}");
    let all = one.list(&mut conn).await.unwrap();
    let holders: Vec<_> = all.iter().map(|row| row.holder.as_str()).collect();
    assert_eq!(holders, ["worker é 1", "worker 2"]);
    assert_eq!(all[1].key, None);
    expire(&db).await;
    assert_eq!(one.list(&mut conn).await.unwrap(), []);
    assert_eq!(one.find(&mut conn, &webhook).await.unwrap(), None);
    assert_eq!(db.count("SELECT count(key) FROM advisory_lease").await, 1);
    assert_eq!(one.sweep(&mut conn).await.unwrap(), 2);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}

/// One of sixteen grants removes expired rows, and is a statement of its own.
async fn prepare_both_grants(pool: &Pool, leases: &Leases<Pool>) {
    let mut prepared = 0;
    while prepared < 2 {
        once(leases, key("k")).await.unwrap();
        let mut conn = pool.get().await.unwrap();
        prepared = names(&mut conn, "WITH free AS").await.len();
    }
}

#[tokio::test]
async fn each_call_is_one_round_trip() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let pool = Database::unchecked_deadpool_at(proxy.url());
    let (table, events) = (Table::new(), Events::default());
    let leases = Leases::new(pool.clone()).observe(events.observer());
    prepare_both_grants(&pool, &leases).await;
    // Once to prepare each of the other statements.
    for round in 0..2 {
        let counted = |what: &str| {
            if round == 1 {
                assert_eq!(proxy.round_trips(), 1, "{what}: {:?}", proxy.queries());
            }
            proxy.reset();
        };
        proxy.reset();
        // A renewal whose answer is late by an eighth of this is sent again.
        let request = key("k").renew(Duration::from_secs(3));
        let held = leases.acquire(request).await.unwrap();
        counted("acquire");
        let renewed = events.count("Renewed");
        leases.acquire(key("k")).await.unwrap_err();
        counted("a refused acquire");
        leases.holds(held.lease()).await.unwrap();
        counted("holds");
        leases.list().await.unwrap();
        counted("list");
        events.until_more("Renewed", renewed).await;
        assert_eq!(events.count("Renewed"), renewed + 1);
        counted("renew");
        {
            let mut conn = pool.get().await.unwrap();
            table.find(&mut conn, Request::text("k")).await.unwrap();
            counted("find");
            let fenced: Result<(), Error> = in_transaction(&mut conn, async |conn| {
                held.lease().fence(conn).await?;
                proxy.reset();
                held.lease().fence(conn).await?;
                counted("fence");
                Ok(())
            })
            .await;
            fenced.unwrap();
        }
        proxy.reset();
        finish(held).await.unwrap();
        counted("release");
    }
}

#[tokio::test]
async fn a_keep_that_waits_for_a_row_counts_from_after_the_wait() {
    let db = database().await;
    let mut admin = db.connect().await;
    let held = leases_at(db.url(), 1).acquire(key("k").keep(HOUR)).await;
    let held = held.unwrap();
    execute(&mut admin, "BEGIN").await.unwrap();
    run(&mut admin, "SELECT FROM advisory_lease FOR UPDATE").await;
    let kept = spawn(finish(held));
    // This test is about the wait: time has to pass in it.
    until_keep_waits(&db).await;
    let before = db
        .count("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8")
        .await;
    execute(&mut admin, "COMMIT").await.unwrap();
    kept.await.unwrap().unwrap();
    let until = db
        .count("SELECT (extract(epoch FROM expires_at) * 1000)::int8 FROM advisory_lease")
        .await;
    assert!(until >= before + 3_600_000, "{until} {before}");
}

async fn until_keep_waits(db: &Database) {
    let waited = "SELECT FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event_type = 'Lock' AND query_start + interval '300 ms' < pg_catalog.clock_timestamp()";
    db.until_some("a keep that has waited", waited).await;
}
