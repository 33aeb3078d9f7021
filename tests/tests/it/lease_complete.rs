//! `Lease::complete`: the effect happens exactly once, wherever the process dies; without it at
//! least once.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Error, Lease, Leases, Request, Table};
use advisory_runtime::{Pool as _, advisory_lease};
use advisory_tests::bookings::execute;
use advisory_tests::leases::{database, expire, key};
use advisory_tests::player::{Player, ROLE, URL};
use advisory_tests::{Database, Proxy};
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::env;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const GENEROUS: Duration = Duration::from_secs(60);

/// A process that handles webhooks, and dies at some point.
struct Worker {
    pool: Pool<AsyncPgConnection>,
    /// Where it dies: it reports the point, and does nothing afterwards.
    dies: String,
    completes: bool,
}

impl Worker {
    fn new(url: &str, dies: &str, completes: bool) -> Self {
        let manager = AsyncDieselConnectionManager::new(url);
        Self {
            pool: Pool::builder(manager).max_size(4).build().unwrap(),
            dies: dies.to_owned(),
            completes,
        }
    }

    async fn at(&self, point: &str) -> Result<(), Error> {
        if self.dies.starts_with(point) {
            let mut conn = self.pool.connection().await?;
            execute(&mut conn, "INSERT INTO said VALUES ('there')").await?;
            pending::<()>().await;
        }
        Ok(())
    }

    #[advisory_lease(
        key = "complete-webhook:<id>",
        pool = self.pool,
        keep = "24h",
        wait = "never",
        on_done = Ok(()),
        handle = lease
    )]
    async fn handle(&self, id: &str) -> Result<(), Error> {
        let mut conn = self.pool.connection().await?;
        let credited = conn.transaction(async |conn| {
            lease.fence(conn).await?;
            execute(conn, "UPDATE account SET balance = balance + 1").await?;
            if self.completes {
                lease.complete(conn).await?;
            }
            self.at("before the commit").await
        });
        credited.await?;
        drop(conn);
        self.at("behind the commit").await
    }
}

/// Does nothing unless another test starts it.
#[tokio::test]
async fn the_process_that_dies() {
    let (Ok(role), Ok(url)) = (env::var(ROLE), env::var(URL)) else {
        return;
    };
    let completes = !role.ends_with("without");
    let worker = Worker::new(&url, &role, completes);
    if role.starts_with("before the release") {
        // The end of the call does not reach the server.
        let leases = Leases::new(worker.pool.clone());
        let held = leases.acquire(key("complete-webhook:evt").keep(GENEROUS * 60));
        let mut held = held.await.unwrap();
        let lease = held.lease().clone();
        let body = held.run(credit(&worker, &lease));
        body.await.unwrap().unwrap();
        worker.at("before the release").await.unwrap();
    }
    worker.handle("evt").await.unwrap();
}

async fn credit(worker: &Worker, lease: &Lease) -> Result<(), Error> {
    let mut conn = worker.pool.connection().await?;
    let credited = conn.transaction(async |conn| {
        execute(conn, "UPDATE account SET balance = balance + 1").await?;
        lease.complete(conn).await
    });
    credited.await
}

async fn stage() -> Database {
    let db = database().await;
    db.run("CREATE TABLE said (what text); CREATE TABLE account AS SELECT 0::int8 AS balance")
        .await;
    db
}

/// Kills a process at the point, delivers the webhook again when its lease is over, and returns the
/// balance.
async fn balance_after(role: &str) -> i64 {
    let db = stage().await;
    let player = Player::start("lease_complete::the_process_that_dies", &db, role);
    let missing = "SELECT 'no' WHERE NOT EXISTS (SELECT FROM said)";
    db.until_empty(GENEROUS, "the process at its point", missing)
        .await;
    drop(player);
    let left = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                AND backend_type = 'client backend' AND state <> 'idle'";
    db.until_empty(GENEROUS, "the end of its sessions", left)
        .await;
    // The ttl is over.
    db.run("UPDATE advisory_lease SET expires_at = pg_catalog.clock_timestamp() WHERE NOT is_kept")
        .await;
    let again = Worker::new(db.url(), "nowhere", true);
    for _ in 0..3 {
        again.handle("evt").await.unwrap();
    }
    db.count("SELECT balance FROM account").await
}

#[tokio::test]
async fn a_process_killed_anywhere_leaves_the_effect_exactly_once() {
    for point in [
        "before the commit",
        "behind the commit",
        "before the release",
    ] {
        assert_eq!(balance_after(point).await, 1, "{point}");
    }
}

/// The control: what the pages say about a lease without `complete`.
#[tokio::test]
async fn without_complete_work_killed_after_its_commit_runs_again() {
    assert_eq!(balance_after("behind the commit, without").await, 2);
}

#[tokio::test]
async fn a_completed_key_is_kept_and_its_holder_can_do_no_more() {
    let db = stage().await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let request = key("k").keep(GENEROUS * 60);
    let lease = table.acquire(&mut conn, request).await.unwrap();
    let completed = conn.transaction(async |conn| {
        lease.fence(conn).await?;
        lease.complete(conn).await?;
        // Other calls are refused, also after the expiry, and do not wait.
        db.run("SELECT 1").await;
        let error = table.acquire(&mut other, key("k")).await.unwrap_err();
        assert!(error.is_held(), "{error:?}");
        Ok::<_, Error>(())
    });
    completed.await.unwrap();
    let row = table
        .find(&mut conn, Request::text("k"))
        .await
        .unwrap()
        .unwrap();
    assert!(row.is_done && row.remaining > GENEROUS * 59, "{row:?}");
    assert_eq!(row.token, lease.token());
    assert!(!table.holds(&mut conn, &lease).await.unwrap());
    assert!(!table.release(&mut conn, &lease).await.unwrap());
    let fenced = conn.transaction(async |conn| lease.fence(conn).await);
    assert!(matches!(fenced.await, Err(Error::Lost { .. })));
    let error = table.acquire(&mut other, key("k")).await.unwrap_err();
    assert!(error.is_done() && !error.is_held(), "{error:?}");
}

#[tokio::test]
async fn complete_needs_keep_a_transaction_and_a_current_lease() {
    let db = stage().await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let complete = async |conn: &mut AsyncPgConnection, lease: &Lease| {
        conn.transaction(async |conn| lease.complete(conn).await)
            .await
            .unwrap_err()
    };
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    let error = complete(&mut conn, &lease).await;
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(lease.is_held() && table.release(&mut conn, &lease).await.unwrap());
    let lease = table.acquire(&mut conn, key("k").keep(GENEROUS)).await;
    let lease = lease.unwrap();
    let error = lease.complete(&mut conn).await.unwrap_err();
    assert!(matches!(error, Error::NotInTransaction { .. }), "{error:?}");
    expire(&db).await;
    table.acquire(&mut other, key("k")).await.unwrap();
    let error = complete(&mut conn, &lease).await;
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(!lease.is_held());
}

/// The keeper asks how the transaction of `complete` has ended, and the body continues meanwhile.
#[tokio::test]
async fn a_body_that_has_completed_is_not_dropped_by_a_renewal() {
    let db = stage().await;
    let leases = Leases::new(db.deadpool(3));
    let request = || key("k").keep(GENEROUS).renew(Duration::from_millis(20));
    for commits in [true, false] {
        let mut held = leases.acquire(request()).await.unwrap();
        let lease = held.lease().clone();
        let mut conn = db.connect().await;
        let body = async {
            let ended = conn.transaction(async |conn| {
                lease.complete(conn).await?;
                let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
                let since = db.count(now).await;
                let asks = format!(
                    "SELECT 'no' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() \
                     AND query LIKE '%pg_xact_status%' AND pid <> pg_backend_pid() \
                     AND (extract(epoch FROM query_start) * 1000000)::int8 > {since})"
                );
                db.until_empty(GENEROUS, "a question of the keeper", &asks)
                    .await;
                if commits {
                    return Ok(());
                }
                Err(Error::Database(diesel::result::Error::RollbackTransaction))
            });
            assert_eq!(ended.await.is_ok(), commits);
        };
        held.run(body).await.unwrap();
        let finished = held.finish(Ok::<_, Error>(())).await;
        let rows = leases.list().await.unwrap();
        if commits {
            finished.unwrap();
            assert!(rows[0].is_done, "{rows:?}");
        } else {
            // The work is not done, and the key is free for the next try.
            let error = finished.unwrap_err();
            assert!(matches!(error, Error::RolledBack { .. }), "{error:?}");
            assert_eq!(rows, []);
        }
        db.run("DELETE FROM advisory_lease").await;
    }
}

/// The answer does not depend on whether the row is still there: the transaction's number tells how
/// it has ended.
#[tokio::test]
async fn ok_is_refused_after_a_rollback_of_complete_however_short_the_keep() {
    let db = stage().await;
    let leases = Leases::new(db.deadpool(2));
    for is_row_gone in [false, true] {
        let brief = Duration::from_millis(1);
        let request = key("k").keep(brief).renew(Duration::from_secs(20));
        let mut held = leases.acquire(request).await.unwrap();
        let lease = held.lease().clone();
        let mut conn = db.connect().await;
        let body = async {
            let ended = conn.transaction(async |conn| {
                lease.complete(conn).await?;
                Err::<(), _>(rolled_back())
            });
            ended.await.unwrap_err();
            db.run(
                "DROP TABLE IF EXISTS ended; CREATE TABLE ended AS SELECT clock_timestamp() AS at",
            )
            .await;
            let over = "SELECT 'no' FROM ended WHERE clock_timestamp() < at + interval '2 ms'";
            db.until_empty(GENEROUS, "a time longer than the keep", over)
                .await;
            if is_row_gone {
                db.run("DELETE FROM advisory_lease").await;
            }
        };
        held.run(body).await.unwrap();
        let error = held.finish(Ok::<_, Error>(())).await.unwrap_err();
        let is_clear = match error {
            Error::RolledBack { .. } => !is_row_gone,
            Error::Lost { .. } => is_row_gone,
            _ => false,
        };
        assert!(is_clear, "{error:?}");
    }
}

/// The same for a commit.
#[tokio::test]
async fn ok_stays_ok_after_a_commit_of_complete_whose_row_is_gone() {
    let db = stage().await;
    let leases = Leases::new(db.deadpool(2));
    let request = key("k")
        .keep(Duration::from_millis(1))
        .renew(Duration::from_secs(20));
    let mut held = leases.acquire(request).await.unwrap();
    let lease = held.lease().clone();
    let mut conn = db.connect().await;
    let body = async {
        conn.transaction(async |conn| lease.complete(conn).await)
            .await
            .unwrap();
        db.run("DELETE FROM advisory_lease").await;
    };
    held.run(body).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

/// A transaction that is rolled back undoes `complete` too, and an error releases the lease.
#[tokio::test]
async fn a_rollback_leaves_the_key_free_for_the_next_try() {
    let db = stage().await;
    let leases = Leases::new(db.deadpool(2));
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
    held.finish(failed).await.unwrap_err();
    assert_eq!(leases.list().await.unwrap(), []);
    drop(leases.acquire(key("k")).await.unwrap());
}

fn rolled_back() -> Error {
    Error::Database(diesel::result::Error::RollbackTransaction)
}

/// The body has ignored the rollback, and returns `Ok`.
#[tokio::test]
async fn ok_is_refused_after_a_rolled_back_complete_and_a_take_over() {
    let db = stage().await;
    let leases = Leases::new(db.deadpool(2));
    let mut held = leases.acquire(key("k").keep(GENEROUS * 60)).await.unwrap();
    let lease = held.lease().clone();
    let mut conn = db.connect().await;
    let body = async {
        let ended = conn.transaction(async |conn| {
            lease.complete(conn).await?;
            Err::<(), _>(rolled_back())
        });
        ended.await.unwrap_err();
        // It took too long, and no renewal was sent meanwhile.
        expire(&db).await;
        Table::new().acquire(&mut conn, key("k")).await.unwrap()
    };
    let other = held.run(body).await.unwrap();
    let error = held.finish(Ok::<_, Error>(())).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(Table::new().holds(&mut conn, &other).await.unwrap());
}

/// The body has ignored the rollback, whether or not a renewal has noticed it: the work is not
/// done, and the key is not kept.
#[tokio::test]
async fn ok_is_refused_after_a_rolled_back_complete() {
    let db = stage().await;
    let leases = Leases::new(db.deadpool(2));
    for (is_noticed, tries) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let every = if is_noticed { 20 } else { 20_000 };
        let request = key("k").keep(GENEROUS).renew(Duration::from_millis(every));
        let mut held = leases.acquire(request).await.unwrap();
        let lease = held.lease().clone();
        let mut conn = db.connect().await;
        let body = async {
            for number in 1..=tries {
                let ended = conn.transaction(async |conn| {
                    lease.complete(conn).await?;
                    if number == 2 {
                        Ok(())
                    } else {
                        Err(rolled_back())
                    }
                });
                assert_eq!(ended.await.is_ok(), number == 2);
                let seen = if number == 2 {
                    "phase: Ended"
                } else {
                    "phase: RolledBack"
                };
                while is_noticed && !format!("{lease:?}").contains(seen) {
                    db.run("SELECT 1").await;
                }
            }
        };
        held.run(body).await.unwrap();
        let finished = held.finish(Ok::<_, Error>(())).await;
        let rows = leases.list().await.unwrap();
        if tries == 2 {
            finished.unwrap();
            assert!(rows[0].is_done);
        } else {
            let error = finished.unwrap_err();
            assert!(matches!(error, Error::RolledBack { .. }), "{error:?}");
            assert!(error.to_string().contains("under lease"), "{error}");
            assert_eq!(rows, []);
        }
        db.run("DELETE FROM advisory_lease").await;
    }
}

/// The body may have ignored a rollback, and the server cannot be asked.
#[tokio::test]
async fn ok_is_unknown_if_the_commit_of_complete_is_unknown() {
    let db = stage().await;
    for (commits, is_settled) in [(true, true), (true, false), (false, false)] {
        let proxy = Proxy::start(&db).await;
        let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(proxy.url());
        let leases = Leases::new(Pool::builder(manager).max_size(2).build().unwrap());
        let every = if is_settled { 20 } else { 20_000 };
        let request = key("k").keep(GENEROUS).renew(Duration::from_millis(every));
        let mut held = leases.acquire(request).await.unwrap();
        let lease = held.lease().clone();
        let mut conn = db.connect().await;
        let body = async {
            let ended = conn.transaction(async |conn| {
                lease.complete(conn).await?;
                if commits { Ok(()) } else { Err(rolled_back()) }
            });
            assert_eq!(ended.await.is_ok(), commits);
            // Until a renewal has seen the commit.
            while is_settled && !format!("{lease:?}").contains("phase: Ended") {
                db.run("SELECT 1").await;
            }
        };
        held.run(body).await.unwrap();
        proxy.refuse_connections().await;
        proxy.cut_all();
        let finished = held.finish(Ok::<_, Error>(())).await;
        if is_settled {
            finished.unwrap();
        } else {
            let error = finished.unwrap_err();
            assert!(matches!(error, Error::CommitUnknown { .. }), "{error:?}");
            assert!(error.to_string().contains("under lease"), "{error}");
        }
        db.run("DELETE FROM advisory_lease").await;
    }
}

/// The key is free again either way, and the server cannot be asked.
#[tokio::test]
async fn ok_is_unknown_without_the_server_also_once_the_keep_of_complete_is_over() {
    let db = stage().await;
    let proxy = Proxy::start(&db).await;
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(proxy.url());
    let leases = Leases::new(Pool::builder(manager).max_size(2).build().unwrap());
    let keep = Duration::from_millis(1);
    let request = key("k").keep(keep).renew(Duration::from_secs(20));
    let mut held = leases.acquire(request).await.unwrap();
    let lease = held.lease().clone();
    let mut conn = db.connect().await;
    let body = async {
        conn.transaction(async |conn| lease.complete(conn).await)
            .await?;
        let kept = "SELECT 'done' FROM advisory_lease WHERE expires_at > clock_timestamp()";
        db.until_empty(GENEROUS, "the end of the keep", kept).await;
        Ok::<_, Error>(())
    };
    held.run(body).await.unwrap().unwrap();
    proxy.refuse_connections().await;
    proxy.cut_all();
    let error = held.finish(Ok::<_, Error>(())).await.unwrap_err();
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error:?}");
}

/// A transaction that outlives the lease excludes others, since it has locked the row; its rollback
/// lets them in.
#[tokio::test]
async fn a_body_is_dropped_if_complete_rolls_back_past_the_expiry() {
    let db = stage().await;
    let leases = Leases::new(db.deadpool(4));
    let ttl = Duration::from_millis(300);
    for commits in [false, true] {
        loop {
            let (mut conn, mut other) = (db.connect().await, db.connect().await);
            execute(&mut other, "SELECT pg_advisory_lock(8)")
                .await
                .unwrap();
            let request = key("k").ttl(ttl).keep(GENEROUS * 60);
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
                        let left =
                            "SELECT 'left' FROM advisory_lease WHERE expires_at > clock_timestamp()";
                        db.until_empty(GENEROUS, "the expiry", left).await;
                        let error = Table::new().acquire(&mut other, key("k")).await;
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
                db.until_empty(GENEROUS, "a question that waits", asks)
                    .await;
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
            let finished = held.finish(Ok::<_, Error>(())).await;
            assert_eq!(finished.is_ok(), commits, "{finished:?}");
            let rows = leases.list().await.unwrap();
            assert_eq!(rows.iter().any(|row| row.is_done), commits, "{rows:?}");
            break;
        }
    }
}
