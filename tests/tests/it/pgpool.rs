//! Behind Pgpool-II each client has its own server session, so every kind of lock works. A locked call goes to the
//! primary, although statements that only read go to a standby.

use crate::bookings::{book, committed, database, key_of};
use crate::lease;
use advisory_runtime::lease::Leases;
use advisory_runtime::{Error, Isolation, Request, Wait, session, xact};
use advisory_tests::{Database, OwnServer, Pgpool, Standby, left_out, owns_server};
use diesel::sql_types::Text;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

async fn pgpool(db: &Database) -> Option<Pgpool> {
    Pgpool::start(db)
        .await
        .map_err(|why| left_out("pgpool", why))
        .ok()
}

async fn connect(url: &str) -> AsyncPgConnection {
    AsyncPgConnection::establish(url).await.unwrap()
}

fn pool(url: &str) -> Pool<AsyncPgConnection> {
    let manager = AsyncDieselConnectionManager::new(url);
    Pool::builder(manager).max_size(3).build().unwrap()
}

/// The key is held: another session does not get it.
async fn assert_held(db: &Database) {
    let mut other = db.connect().await;
    let missed = xact::begin(&mut other, Request::new(7).wait(Wait::Never)).await;
    let error = missed.map(drop).unwrap_err();
    assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
}

#[tokio::test]
async fn locks_of_every_scope_and_level_are_held_and_released() {
    let db = database().await;
    let Some(pgpool) = pgpool(&db).await else {
        return;
    };
    let url = pgpool.url(&db);
    session::verify(&pool(&url)).await.unwrap();
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
    let db = lease::database().await;
    let Some(pgpool) = pgpool(&db).await else {
        return;
    };
    let leases = Leases::new(pool(&pgpool.url(&db)));
    for _ in 0..2 {
        let held = leases.acquire(lease::key("k")).await.unwrap();
        let missed = leases.acquire(lease::key("k").wait(Wait::Never)).await;
        assert!(matches!(
            missed,
            Err(advisory_runtime::lease::Error::Held { .. })
        ));
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

/// The folder of the server that answers read-only statements.
async fn place(conn: &mut AsyncPgConnection) -> String {
    let place = diesel::dsl::sql::<Text>("SELECT current_setting('data_directory')");
    place.get_result(conn).await.unwrap()
}

#[tokio::test]
async fn a_call_and_its_transactions_body_are_on_the_primary() {
    if !owns_server() {
        return left_out("pgpool", "the server is not our own");
    }
    let (primary, standby) = (OwnServer::start().await, Standby::start().await);
    let pgpool = match Pgpool::balancing(&primary, &standby).await {
        Ok(pgpool) => pgpool,
        Err(why) => return left_out("pgpool", why),
    };
    let on_primary = place(&mut connect(primary.url()).await).await;
    let on_standby = place(&mut connect(standby.url()).await).await;
    let mut conn = connect(&pgpool.address("postgres")).await;
    assert_eq!(place(&mut conn).await, on_standby);
    for request in [
        Request::new(7),
        Request::new(7).isolation(Isolation::RepeatableRead),
        Request::new(7).isolation(Isolation::Serializable),
        Request::new(7).wait(Wait::Never),
        Request::new(7).shared(),
        Request::all([6, 7, 8]),
    ] {
        let what = format!("{request:?}");
        let mut held = xact::begin(&mut conn, request).await.unwrap();
        assert_eq!(place(held.conn()).await, on_primary, "{what}");
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(place(&mut conn).await, on_standby, "{what}");
    }
    session::verify(&pool(&pgpool.address("postgres")))
        .await
        .unwrap();
    // A session-level body is not in a transaction, so its reads may run on the standby, as the guide says.
    let mut held = session::acquire(&mut conn, 7).await.unwrap();
    let mut other = connect(primary.url()).await;
    let missed = xact::begin(&mut other, Request::new(7).wait(Wait::Never)).await;
    assert!(matches!(missed, Err(Error::NotAvailable { .. })));
    assert_eq!(place(held.conn()).await, on_standby);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}
