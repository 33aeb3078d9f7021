//! Behind Pgpool-II each client has its own server session, so every kind of lock works. A locked
//! call goes to the primary, although statements that only read go to a standby.

use crate::calls::book;
use crate::sync_job;
use advisory_runtime::claim::{self, End, State};
use advisory_runtime::lease::{Leases, Table};
use advisory_runtime::{Error, Isolation, Request, Wait, session, xact};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::statements::run;
use advisory_tests::{
    Database, OwnServer, Pgpool, Standby, assert_error, assert_matches, leases, left_out,
    owns_server,
};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

async fn pgpool(db: &Database) -> Option<Pgpool> {
    Pgpool::start(db)
        .await
        .map_err(|why| left_out("pgpool", why))
        .ok()
}

async fn connect(url: &str) -> AsyncPgConnection {
    AsyncPgConnection::establish(url).await.unwrap()
}

/// The key is held: another session does not get it.
async fn assert_held(db: &Database) {
    let mut other = db.connect().await;
    let missed = xact::begin(&mut other, Request::new(7).wait(Wait::Never)).await;
    assert_error!(missed, NotAvailable);
}

#[tokio::test]
async fn locks_of_every_scope_and_level_are_held_and_released() {
    let db = database().await;
    let Some(pgpool) = pgpool(&db).await else {
        return;
    };
    let url = pgpool.url(&db);
    session::verify(&Database::deadpool_at(&url, 3))
        .await
        .unwrap();
    let mut conn = connect(&url).await;
    for request in [
        Request::new(7),
        Request::new(7).isolation(Isolation::Serializable),
        Request::new(7).wait(Wait::Never),
        Request::all([6, 7, 8]),
    ] {
        let held = xact::begin(&mut conn, request).await.unwrap();
        assert_held(&db).await;
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(db.locks().await, []);
    }
    for request in [Request::new(7), Request::all([6, 7, 8])] {
        let held = session::acquire(&mut conn, request).await.unwrap();
        assert_held(&db).await;
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(db.locks().await, []);
    }
    assert!(book(&mut conn, 1, "Ada").await.unwrap());
    assert!(!book(&mut connect(&url).await, 1, "Eve").await.unwrap());
    assert_eq!(committed(&db, 1).await, 1);
}

#[tokio::test]
async fn a_lease_is_granted_renewed_and_released() {
    let db = leases::database().await;
    let Some(pgpool) = pgpool(&db).await else {
        return;
    };
    let leases = Leases::new(Database::deadpool_at(pgpool.url(&db), 3));
    for _ in 0..2 {
        let held = leases.acquire(leases::key("k")).await.unwrap();
        let missed = leases.acquire(leases::key("k").wait(Wait::Never)).await;
        assert_matches!(missed, Err(advisory_runtime::lease::Error::Held { .. }));
        held.finish(Ok::<_, advisory_runtime::lease::Error>(()))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_leaves_the_queue() {
    let db = database().await;
    let Some(pgpool) = pgpool(&db).await else {
        return;
    };
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(1)).await.unwrap();
    let mut conn = connect(&pgpool.url(&db)).await;
    tokio::select! {
        biased;
        _ = book(&mut conn, 1, "Ada") => panic!("the lock is held"),
        () = db.until_waiting(key_of(1)) => {}
    }
    drop(conn);
    db.until_no_waiters(key_of(1)).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_no_locks().await;
}

/// Servers of which the standby has no table: a statement that reads it there fails.
async fn balancing() -> Option<(OwnServer, Standby, Pgpool)> {
    if !owns_server() {
        left_out("pgpool", "the server is not our own");
        return None;
    }
    let (primary, standby) = (OwnServer::start().await, Standby::start().await);
    match Pgpool::balancing(&primary, &standby, "").await {
        Ok(pgpool) => Some((primary, standby, pgpool)),
        Err(why) => {
            left_out("pgpool", why);
            None
        }
    }
}

#[tokio::test]
async fn a_lease_is_on_the_primary_where_reads_are_balanced() {
    let Some((primary, _standby, pgpool)) = balancing().await else {
        return;
    };
    let mut direct = connect(primary.url()).await;
    Table::new().set_up(&mut direct).await.unwrap();
    let leases = Leases::new(Database::deadpool_at(pgpool.address("postgres"), 3));
    for _ in 0..2 {
        let request = leases::key("k").keep(Duration::from_secs(60));
        let held = leases.acquire(request).await.unwrap();
        let missed = leases.acquire(leases::key("k")).await.unwrap_err();
        assert_matches!(missed, advisory_runtime::lease::Error::Held { .. });
        let lease = held.info();
        let mut conn = connect(&pgpool.address("postgres")).await;
        let mut work = xact::begin(&mut conn, 7).await.unwrap();
        lease.fence(work.conn()).await.unwrap();
        lease.complete(work.conn()).await.unwrap();
        work.finish(Ok::<_, Error>(())).await.unwrap();
        held.finish(Ok::<_, advisory_runtime::lease::Error>(()))
            .await
            .unwrap();
        let again = leases.acquire(leases::key("k")).await.unwrap_err();
        assert_matches!(again, advisory_runtime::lease::Error::Done { .. });
        run(&mut direct, "DELETE FROM advisory_lease").await;
    }
}

#[tokio::test]
async fn a_claim_is_on_the_primary_where_reads_are_balanced() {
    let Some((primary, _standby, pgpool)) = balancing().await else {
        return;
    };
    let mut direct = connect(primary.url()).await;
    direct.batch_execute(sync_job::SCHEMA).await.unwrap();
    direct.batch_execute(&sync_job::jobs(3)).await.unwrap();
    let pool = Database::deadpool_at(pgpool.address("postgres"), 3);
    let mut conn = pool.get().await.unwrap();
    for state in [State::Completed, State::Failed, State::Available] {
        let job = sync_job::next(&mut conn).await;
        claim::renew(&mut conn, &job).await.unwrap();
        match state {
            State::Completed => {
                let work = async { Ok::<_, claim::Error>(()) };
                claim::run(&pool, &job, End::Fail, work).await.unwrap();
            }
            State::Failed => claim::fail(&mut conn, &job, "no").await.unwrap(),
            _ => claim::release(&mut conn, &job).await.unwrap(),
        }
        assert_eq!(sync_job::state_of(&mut direct, job.id).await, state);
    }
}
