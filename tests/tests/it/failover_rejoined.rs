//! An old primary that comes back as a standby, and is promoted once more.

use crate::calls::book;
use advisory_runtime::Error as LockError;
use advisory_tests::failover::{
    BOOKING, connect, cut_off, number, primary, timeline_of, token, until,
};
use advisory_tests::leases::{key, leases_at, once};
use advisory_tests::{assert_matches, left_out};
use diesel_async::SimpleAsyncConnection;

#[tokio::test]
async fn a_primary_that_comes_back_has_lost_only_what_it_did_alone() {
    let Some(first) = primary().await else {
        return;
    };
    let mut conn = connect(&first).await;
    conn.batch_execute(BOOKING).await.unwrap();
    conn.batch_execute("ALTER SYSTEM SET wal_log_hints = on")
        .await
        .unwrap();
    first.stop("fast").await;
    first.start_again().await;
    let second = first.follow().await;
    let mut old = connect(&first).await;
    assert!(book(&mut old, 1, "both").await.unwrap());
    cut_off(&first, &second).await;
    // Alone.
    assert!(book(&mut old, 2, "alone").await.unwrap());
    let alone = token(&first, "k").await;
    second.promote().await;
    let mut new = connect(&second).await;
    assert!(book(&mut new, 2, "second").await.unwrap());
    let after = token(&second, "k").await;
    assert!(after > alone && timeline_of(after) == 2);
    // The timeline is in the control file, where `pg_rewind` looks, from a checkpoint on.
    new.batch_execute("CHECKPOINT").await.unwrap();
    if !first.can_rejoin() {
        return left_out("failover", "the server came without `pg_rewind`");
    }
    first.stop("fast").await;
    first.rejoin(&second).await;
    let mut back = connect(&first).await;
    until(&mut back, "(SELECT count(*) = 2 FROM booking)").await;
    // As a standby it grants nothing.
    let refused = book(&mut back, 3, "back").await.unwrap_err();
    let found = LockError::find(&refused);
    assert!(
        found
            .as_deref()
            .is_some_and(|found| matches!(found, LockError::Standby { .. })),
        "{refused}"
    );
    let refused = once(&leases_at(first.url(), 1), key("k")).await;
    assert_matches!(refused, Err(advisory_runtime::lease::Error::Standby { .. }));
    let last = token(&second, "k").await;
    second.stop("fast").await;
    first.promote().await;
    let mut back = connect(&first).await;
    let guests = "SELECT count(*) FROM booking WHERE guest = 'alone'";
    assert_eq!(number(&mut back, guests).await, 0);
    assert!(!book(&mut back, 2, "third").await.unwrap());
    let newest = token(&first, "k").await;
    assert!(newest > last && timeline_of(newest) == 3);
}
