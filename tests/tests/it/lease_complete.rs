//! `Lease::complete`: a key is done exactly if its transaction was committed, and an `Ok` says so.
//! `lease_deliveries` kills the process at each step.

use advisory_runtime::lease::{Error, Lease, Request, Table};
use advisory_tests::bookings::{execute, run};
use advisory_tests::leases::{
    BRIEF, GENEROUS, HOUR, database, expire, fence, finish, key, leases_at, once, orphan,
    until_free, until_over, until_renewed,
};
use advisory_tests::{Proxy, assert_matches};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(1);

fn rolled_back() -> Error {
    Error::Database(diesel::result::Error::RollbackTransaction)
}

/// A transaction that completes the lease, and is then committed or rolled back.
async fn complete(conn: &mut AsyncPgConnection, lease: &Lease, commits: bool) {
    let ended = conn.transaction(async |conn| {
        lease.complete(conn).await?;
        if commits { Ok(()) } else { Err(rolled_back()) }
    });
    assert_eq!(ended.await.is_ok(), commits);
}

#[tokio::test]
async fn a_completed_key_is_kept_and_its_holder_can_do_no_more() {
    use diesel_async::RunQueryDsl as _;
    let db = database().await;
    let (leases, mut conn) = (leases_at(db.url(), 1), db.connect().await);
    let table = Table::new();
    let lease = orphan(db.url(), &table, key("k").keep(HOUR)).await;
    let completed = conn.transaction(async |conn| {
        lease.fence(conn).await?;
        lease.complete(conn).await?;
        // Other calls are refused, and do not wait.
        let error = once(&leases, key("k")).await.unwrap_err();
        assert!(error.is_held(), "{error:?}");
        Ok::<_, Error>(())
    });
    completed.await.unwrap();
    let row = table.find(&mut conn, Request::text("k")).await;
    let row = row.unwrap().unwrap();
    assert!(row.is_done && row.remaining > GENEROUS * 59, "{row:?}");
    assert_eq!(row.token, lease.token());
    assert!(!leases.holds(&lease).await.unwrap());
    assert!(!table.release(&mut conn, &lease).await.unwrap());
    let of_a_write = diesel::select(lease.is_current());
    assert!(!of_a_write.get_result::<bool>(&mut conn).await.unwrap());
    assert_matches!(fence(&mut conn, &lease).await, Err(Error::Lost { .. }));
    let error = once(&leases, key("k")).await.unwrap_err();
    assert!(error.is_done() && !error.is_held(), "{error:?}");
}

#[tokio::test]
async fn complete_needs_keep_a_transaction_and_a_current_lease() {
    let db = database().await;
    let (table, mut conn) = (Table::new(), db.connect().await);
    let refused = async |conn: &mut AsyncPgConnection, lease: &Lease| {
        conn.transaction(async |conn| lease.complete(conn).await)
            .await
            .unwrap_err()
    };
    let lease = orphan(db.url(), &table, key("k")).await;
    assert_matches!(refused(&mut conn, &lease).await, Error::Invalid { .. });
    assert!(lease.is_held() && table.release(&mut conn, &lease).await.unwrap());
    let lease = orphan(db.url(), &table, key("k").keep(GENEROUS)).await;
    assert_matches!(
        lease.complete(&mut conn).await,
        Err(Error::NotInTransaction { .. })
    );
    expire(&db).await;
    orphan(db.url(), &table, key("k")).await;
    assert_matches!(refused(&mut conn, &lease).await, Error::Lost { .. });
    assert!(!lease.is_held());
}

/// What happens after the transactions, before the body returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    RowGone,
    TakenOver,
    /// The server cannot be asked at the end of the call.
    Unreachable,
}

/// The body ignores rollbacks, and returns `Ok`. The transaction's number says how it has ended,
/// also where the row is gone.
#[tokio::test]
async fn an_ok_is_answered_by_how_the_transaction_of_complete_has_ended() {
    use Then::{Nothing, RowGone, TakenOver, Unreachable};
    let db = database().await;
    let mut conn = db.connect().await;
    // How each transaction ends, whether the keeper has seen that, and for how long the key is kept.
    for case in [
        (&[false][..], false, HOUR, Nothing, "RolledBack"),
        (&[false], true, HOUR, Nothing, "RolledBack"),
        (&[false, true], false, HOUR, Nothing, "Ok"),
        (&[false, true], true, HOUR, Nothing, "Ok"),
        (&[false], false, MOMENT, Nothing, "RolledBack"),
        (&[false], false, MOMENT, RowGone, "Lost"),
        (&[true], false, MOMENT, RowGone, "Ok"),
        (&[false], false, HOUR, TakenOver, "Lost"),
        (&[true], true, HOUR, Unreachable, "Ok"),
        (&[true], false, HOUR, Unreachable, "CommitUnknown"),
        (&[false], false, HOUR, Unreachable, "CommitUnknown"),
        (&[true], false, MOMENT, Unreachable, "CommitUnknown"),
    ] {
        let (ends, is_seen, keep, then, expected) = case;
        let proxy = Proxy::start(&db).await;
        let leases = leases_at(proxy.url(), 2);
        let every = if is_seen { BRIEF } else { GENEROUS / 3 };
        let request = key("k").keep(keep).renew(every);
        let mut held = leases.acquire(request).await.unwrap();
        let (lease, mut other) = (held.lease().clone(), None);
        let body = async {
            for commits in ends {
                complete(&mut conn, &lease, *commits).await;
                match (is_seen, commits) {
                    (true, true) => until_over(&lease).await,
                    // A renewal can have been on its way before.
                    (true, false) => {
                        until_renewed(&lease).await;
                        until_renewed(&lease).await;
                    }
                    (false, _) => {}
                }
            }
            // Longer than the shorter keep.
            db.run("SELECT pg_sleep(0.002)").await;
            match then {
                RowGone => db.run("DELETE FROM advisory_lease").await,
                TakenOver => {
                    expire(&db).await;
                    other = Some(orphan(db.url(), &Table::new(), key("k")).await);
                }
                Nothing | Unreachable => {}
            }
        };
        let ran = held.run(body).await;
        assert!(ran.is_ok(), "{case:?}: {ran:?}");
        if then == Unreachable {
            proxy.refuse_connections().await;
            proxy.cut_all();
        }
        let finished = finish(held).await;
        let said = match &finished {
            Ok(()) => "Ok",
            Err(Error::Lost { .. }) => "Lost",
            Err(Error::RolledBack { .. }) => "RolledBack",
            Err(Error::CommitUnknown { .. }) => "CommitUnknown",
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(said, expected, "{case:?}");
        if let Err(error) = &finished {
            assert!(error.to_string().contains("lease `"), "{error}");
        }
        let rows = Table::new().list(&mut conn).await.unwrap();
        match (then, said) {
            (Nothing, "Ok") => assert!(rows[0].is_done, "{case:?}"),
            (Nothing, _) => assert_eq!(rows, [], "the key is free for the next try"),
            (TakenOver, _) => assert_eq!(rows[0].token, other.unwrap().token()),
            _ => {}
        }
        db.run("DELETE FROM advisory_lease").await;
    }
}

/// A transaction that is rolled back undoes `complete` too, and an error releases the lease.
#[tokio::test]
async fn a_rollback_leaves_the_key_free_for_the_next_try() {
    let db = database().await;
    let leases = leases_at(db.url(), 2);
    let mut held = leases.acquire(key("k").keep(GENEROUS)).await.unwrap();
    let lease = held.lease().clone();
    let mut conn = db.connect().await;
    let failed: Result<(), Error> = held
        .run(conn.transaction(async |conn| {
            lease.complete(conn).await?;
            Err(Error::Database(diesel::NotFound))
        }))
        .await
        .unwrap();
    let failed = held.finish(failed).await;
    assert_matches!(failed, Err(Error::Database(diesel::NotFound)));
    assert_eq!(leases.list().await.unwrap(), []);
    once(&leases, key("k")).await.unwrap();
}

/// A transaction that outlives the lease excludes others, since it has locked the row; its rollback
/// lets them in.
#[tokio::test]
async fn a_body_is_dropped_if_complete_rolls_back_past_the_expiry() {
    let db = database().await;
    let leases = leases_at(db.url(), 4);
    let ttl = Duration::from_millis(300);
    for commits in [false, true] {
        loop {
            let (mut conn, mut other) = (db.connect().await, db.connect().await);
            run(&mut other, "SELECT pg_advisory_lock(8)").await;
            let request = key("k").ttl(ttl).keep(HOUR);
            let mut held = leases.acquire(request).await.unwrap();
            let lease = held.lease().clone();
            let is_completed = AtomicBool::new(false);
            let body = async {
                let ended = conn.transaction(async |conn| {
                    lease.complete(conn).await?;
                    is_completed.store(true, Ordering::Relaxed);
                    // It is busy: the server would end it if it were idle for longer than the
                    // lease.
                    let outlives = async {
                        execute(conn, "SELECT pg_advisory_lock_shared(8)").await?;
                        execute(conn, "SELECT pg_advisory_unlock_shared(8)").await
                    };
                    let others = async {
                        // The state of the row as others see it.
                        until_free(&db).await;
                        let error = once(&leases_at(db.url(), 1), key("k")).await;
                        assert!(error.unwrap_err().is_held());
                        execute(&mut other, "SELECT pg_advisory_unlock(8)").await
                    };
                    let (busy, taken) = tokio::join!(outlives, others);
                    busy?;
                    taken?;
                    if commits { Ok(()) } else { Err(rolled_back()) }
                });
                let ended = ended.await;
                if !is_completed.load(Ordering::Relaxed) {
                    return;
                }
                assert_eq!(ended.is_ok(), commits);
                if !commits {
                    pending::<()>().await;
                }
                // It continues until it is told otherwise.
                let asks = "SELECT 'yes' FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
                db.until_none("a question that waits", asks).await;
            };
            let ran = tokio::time::timeout(GENEROUS, held.run(body)).await;
            let ran = ran.expect("the body goes on under a lease that is lost");
            if !is_completed.load(Ordering::Relaxed) {
                // The machine was suspended for longer than the lease lasts.
                drop(held);
                db.run("DELETE FROM advisory_lease").await;
                continue;
            }
            assert_eq!(ran.is_ok(), commits, "{ran:?}");
            let finished = finish(held).await;
            assert_eq!(finished.is_ok(), commits, "{finished:?}");
            let rows = leases.list().await.unwrap();
            assert_eq!(rows.iter().any(|row| row.is_done), commits, "{rows:?}");
            break;
        }
    }
}
