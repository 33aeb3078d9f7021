//! A row of the lease table that an administrator has set to `infinity`, or to another extreme
//! time.

use advisory_runtime::lease::{Error, Request, Table};
use advisory_runtime::monitor;
use advisory_tests::assert_matches;
use advisory_tests::bookings::in_transaction;
use advisory_tests::leases::{database, key, leases_at, once, orphan, until_renewed};
use std::time::Duration;

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
        let blocking = advisory_runtime::blocking::monitor::leases(
            &mut db.establish(),
            &table,
            &monitor::Names::none(),
        );
        assert_eq!(blocking.unwrap().len(), 2, "{far}");

        // It still belongs to its holder.
        let fenced: Result<(), Error> =
            in_transaction(&mut conn, async |conn| lease.fence(conn).await).await;
        fenced.unwrap();
        until_renewed(&lease).await;
        for held in [held, other] {
            held.finish(Ok::<_, Error>(())).await.unwrap();
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
