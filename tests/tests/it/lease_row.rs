//! The row of a lease: the data of its holder, such as a leader's address, and what an administrator
//! does to it by hand, with a lock or an extreme time.

use advisory_runtime::lease::{Error, Leases, Request, Table};
use advisory_runtime::monitor::{self, Names};
use advisory_tests::leases::{
    database, fence, finish, key, leases_at, once, orphan, run_while_held, until_answered,
    until_over, until_renewed,
};
use advisory_tests::statements::run;
use advisory_tests::{Database, assert_matches};
use std::time::Duration;

const HERE: &str = "10.0.0.7:8080";

async fn data_of(db: &Database) -> Option<String> {
    let row = Table::new().find(&mut db.connect().await, key("k")).await;
    row.unwrap().expect("it is held").data
}

#[tokio::test]
async fn the_holders_data_is_read_by_others_and_changes() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = orphan(db.url(), &table, key("k").data(HERE)).await;
    assert_eq!(data_of(&db).await.as_deref(), Some(HERE));
    let mut other = db.connect().await;
    let seen = monitor::leases(&mut other, &table, &Names::none()).await;
    assert_eq!(seen.unwrap()[0].row.data.as_deref(), Some(HERE));
    for data in [Some("10.0.0.8:8080"), None, Some("")] {
        assert!(table.set_data(&mut conn, &lease, data).await.unwrap());
        assert_eq!(data_of(&db).await.as_deref(), data);
    }
    assert!(lease.is_held());
}

#[tokio::test]
async fn the_next_holder_has_its_own_data() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let old = orphan(db.url(), &table, key("k").data(HERE)).await;
    assert!(table.release(&mut conn, &old).await.unwrap());
    let erased = "SELECT count(*) FROM advisory_lease WHERE data IS NULL";
    assert_eq!(db.count(erased).await, 1);
    let new = orphan(db.url(), &table, key("k")).await;
    assert!(!table.set_data(&mut conn, &old, Some(HERE)).await.unwrap());
    assert_eq!(data_of(&db).await, None);
    assert!(new.is_held() && !old.is_held());
}

#[tokio::test]
async fn a_key_that_is_done_keeps_the_data() {
    let db = database().await;
    let request = key("k").data(HERE).keep(Duration::from_secs(3600));
    once(&leases_at(db.url(), 1), request).await.unwrap();
    assert_eq!(data_of(&db).await.as_deref(), Some(HERE));
}

#[tokio::test]
async fn data_that_the_table_cannot_take_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = orphan(db.url(), &table, key("k")).await;
    let longest = "é".repeat(512);
    let set = table.set_data(&mut conn, &lease, Some(&longest)).await;
    assert!(set.unwrap());
    for data in ["é".repeat(512) + "x", "a\0b".to_owned()] {
        let set = table.set_data(&mut conn, &lease, Some(&data)).await;
        assert_matches!(set, Err(Error::Invalid { .. }));
        let asked = once(&leases_at(db.url(), 1), key("other").data(data)).await;
        assert_matches!(asked, Err(Error::Invalid { .. }));
    }
    assert_eq!(data_of(&db).await, Some(longest));
}

const TTL: Duration = Duration::from_secs(60);
const LOCK_ROWS: &str = "BEGIN; SELECT FROM advisory_lease FOR UPDATE";

#[tokio::test]
async fn a_row_locked_by_hand_delays_renewals_only_and_grants_nothing() {
    let db = database().await;
    let request = key("k").renew(Duration::from_millis(20));
    let holder = leases_at(db.url(), 1).acquire(request).await.unwrap();
    let lease = holder.lease();
    // Statements that wait for the row fail.
    let pool = db.deadpool(1);
    run(&mut pool.get().await.unwrap(), "SET lock_timeout = '10s'").await;
    let leases = Leases::new(pool);
    let mut admin = db.connect().await;
    run(&mut admin, LOCK_ROWS).await;
    assert_matches!(once(&leases, key("k")).await, Err(Error::Held { .. }));
    once(&leases, key("other")).await.unwrap();
    // A renewal does not wait: the lease is held as before.
    until_answered(&db, "renewed AS").await;
    assert!(lease.is_held() && lease.remaining() <= TTL);
    // It expires while the lock is held: nobody takes it over, and its renewal notices.
    let expire = "UPDATE advisory_lease SET expires_at = clock_timestamp() WHERE expires_at > clock_timestamp()";
    run(&mut admin, expire).await;
    assert_matches!(once(&leases, key("k")).await, Err(Error::Held { .. }));
    run(&mut admin, "COMMIT").await;
    until_over(lease).await;
    assert!(once(&leases, key("k")).await.unwrap() > lease.token());
}

#[tokio::test]
async fn a_body_is_dropped_before_the_expiry_if_its_row_stays_locked() {
    let db = database().await;
    let mut other = db.connect().await;
    let leases = leases_at(db.url(), 2);
    let ttl = Duration::from_secs(3);
    let request = key("k").ttl(ttl).renew(Duration::from_millis(100));
    let mut held = leases.acquire(request).await.unwrap();
    let lease = held.lease().clone();
    let lost = held.run(async {
        run(&mut other, LOCK_ROWS).await;
        run_while_held(&db, &lease).await;
    });
    assert_matches!(lost.await, Err(Error::Lost { .. }));
    drop(held);
    // Its renewals do not wait for longer than it was held. The release in the background may.
    let renewals = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                    AND query LIKE '%NO KEY UPDATE%' AND query_start < clock_timestamp() - interval '2 seconds'";
    db.until_none("the end of its renewals", renewals).await;
    let error = once(&leases, key("k")).await.unwrap_err();
    assert!(error.is_held(), "{error:?}");
    run(&mut other, "COMMIT").await;
    // A renewal that waited for the row may still succeed, although its answer is not read. The
    // rest is for a busy machine.
    let next = once(&leases, Request::text("k").wait(ttl + TTL)).await;
    assert!(next.unwrap() > lease.token());
    assert!(!leases.holds(&lease).await.unwrap());
}

/// Times that an interval, or a number of microseconds, cannot reach.
const FAR: [&str; 2] = ["infinity", "294276-12-31 23:59:59+00"];

#[tokio::test]
async fn a_lease_that_never_expires_is_held_like_any_other() {
    let db = database().await;
    let (table, mut conn) = (Table::new(), db.connect().await);
    let leases = leases_at(db.url(), 2);
    for far in FAR {
        let request = key("forever").renew(Duration::from_millis(20));
        let held = leases.acquire(request).await.unwrap();
        let lease = held.lease().clone();
        let other = leases.acquire(key("other")).await.unwrap();
        db.run(&format!(
            "UPDATE public.advisory_lease SET expires_at = '{far}' WHERE token = {}",
            lease.token()
        ))
        .await;
        let error = once(&leases, key("forever")).await.unwrap_err();
        assert_matches!(error, Error::Held { .. }, "{far}");
        let holders = monitor::holders(&mut conn, &error).await.unwrap();
        assert_eq!(holders.len(), 1, "{far}");
        let waits = Request::text("forever").wait(Duration::from_millis(30));
        let error = once(&leases, waits).await.unwrap_err();
        assert_matches!(error, Error::Held { .. }, "{far}");

        let rows = table.list(&mut conn).await.unwrap();
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (row.token, row.never_expires()))
            .collect();
        assert_eq!(
            seen,
            [(other.lease().token(), false), (lease.token(), true)],
            "{far}"
        );
        assert!(
            rows[0].age() > Duration::ZERO && rows[1].age() < Duration::from_secs(60),
            "{far}: {rows:?}"
        );

        // It still belongs to its holder.
        fence(&mut conn, &lease).await.unwrap();
        until_renewed(&lease).await;
        for held in [held, other] {
            finish(held).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_lease_that_has_always_been_expired_is_free() {
    let db = database().await;
    let (table, mut conn) = (Table::new(), db.connect().await);
    orphan(db.url(), &table, key("key")).await;
    db.run("UPDATE public.advisory_lease SET expires_at = '-infinity', acquired_at = '-infinity'")
        .await;
    assert_eq!(table.list(&mut conn).await.unwrap(), []);
    orphan(db.url(), &table, key("key")).await;
    for far in ["infinity", "-infinity"] {
        db.run(&format!(
            "UPDATE public.advisory_lease SET acquired_at = '{far}'"
        ))
        .await;
        assert_eq!(table.list(&mut conn).await.unwrap().len(), 1, "{far}");
    }
}
