//! A row of the lease table that an administrator has set to `infinity`, or to another extreme
//! time.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Error, Lease, Request, Table};
use advisory_runtime::{Wait, monitor};
use advisory_tests::bookings::in_transaction;
use advisory_tests::leases::database;
use diesel_async::AsyncPgConnection;
use std::time::Duration;

/// Times that an interval, or a number of microseconds, cannot reach.
const FAR: [&str; 2] = ["infinity", "294276-12-31 23:59:59+00"];

async fn acquire(conn: &mut AsyncPgConnection, key: &str, wait: Wait) -> Result<Lease, Error> {
    Table::new()
        .acquire(conn, Request::text(key).wait(wait))
        .await
}

#[tokio::test]
async fn a_lease_that_never_expires_is_held_like_any_other() {
    let db = database().await;
    let (table, mut conn) = (Table::new(), db.connect().await);
    for far in FAR {
        let lease = acquire(&mut conn, "forever", Wait::Never).await.unwrap();
        let other = acquire(&mut conn, "other", Wait::Never).await.unwrap();
        db.run(&format!(
            "UPDATE public.advisory_lease SET expires_at = '{far}' WHERE token = {}",
            lease.token()
        ))
        .await;
        let error = acquire(&mut conn, "forever", Wait::Never)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Held { .. }), "{far}: {error:?}");
        let holders = monitor::holders(&mut conn, &error).await.unwrap();
        assert_eq!(holders.len(), 1, "{far}");
        let wait = Wait::For(Duration::from_millis(30));
        let error = acquire(&mut conn, "forever", wait).await.unwrap_err();
        assert!(matches!(error, Error::Held { .. }), "{far}: {error:?}");

        let rows = table.list(&mut conn).await.unwrap();
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (row.token, row.never_expires()))
            .collect();
        assert_eq!(
            seen,
            [(other.token(), false), (lease.token(), true)],
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
        assert!(
            table
                .renew(&mut conn, &lease, Duration::from_secs(9))
                .await
                .unwrap()
        );
        assert!(table.release(&mut conn, &lease).await.unwrap(), "{far}");
        assert!(table.release(&mut conn, &other).await.unwrap(), "{far}");
    }
}

#[tokio::test]
async fn a_lease_that_has_always_been_expired_is_free() {
    let db = database().await;
    let (table, mut conn) = (Table::new(), db.connect().await);
    acquire(&mut conn, "key", Wait::Never).await.unwrap();
    db.run("UPDATE public.advisory_lease SET expires_at = '-infinity', acquired_at = '-infinity'")
        .await;
    assert_eq!(table.list(&mut conn).await.unwrap(), []);
    acquire(&mut conn, "key", Wait::Never).await.unwrap();
    for far in ["infinity", "-infinity"] {
        db.run(&format!(
            "UPDATE public.advisory_lease SET acquired_at = '{far}'"
        ))
        .await;
        assert_eq!(table.list(&mut conn).await.unwrap().len(), 1, "{far}");
    }
}
