use advisory_runtime::{Connection, Error, Isolation, Request, advisory_lock, session, xact};
use advisory_tests::{Bouncer, Database, debug_checks_are_on, left_out};
use diesel::QueryResult;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8::Pool, deadpool::Object};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::ops::{Deref, DerefMut};

mod blocking;
mod calls;
mod hooks;
mod manager;
mod own_pool;
mod prepared;

crate::guide::page!("connections", 1);

#[tokio::test]
async fn a_start_behind_a_transaction_mode_pooler_is_refused() {
    let db = Database::create().await;
    start(&db.bb8(2).await).await.unwrap();
    let settings = "pool_mode = transaction\ndefault_pool_size = 4";
    let bouncer = match Bouncer::start(&db, settings).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out("pgbouncer", why),
    };
    let manager = AsyncDieselConnectionManager::new(bouncer.url(&db));
    let pool = Pool::builder().max_size(2).build(manager).await.unwrap();
    let error = loop {
        match start(&pool).await {
            // Another client's prepared statement has the same name on that session.
            Err(Error::Pool(_)) => {}
            ended => break ended.unwrap_err(),
        }
    };
    assert!(matches!(error, Error::PooledSession { .. }), "{error:?}");
}

crate::guide::page!("connections", 2);
crate::guide::page!("connections", 4);

impl Deref for Audited {
    type Target = AsyncPgConnection;

    fn deref(&self) -> &AsyncPgConnection {
        &self.conn
    }
}

impl DerefMut for Audited {
    fn deref_mut(&mut self) -> &mut AsyncPgConnection {
        &mut self.conn
    }
}

#[tokio::test]
async fn a_call_works_on_each_kind_of_connection() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8)").await;
    let pool = db.bb8(1).await;
    let conn = db.deadpool(1).get().await.unwrap();
    book(&mut db.connect().await, 7).await.unwrap();
    book(&mut pool.get().await.unwrap(), 7).await.unwrap();
    book(&mut Audited { conn }, 7).await.unwrap();
    let booked = "SELECT count(*) FROM booking WHERE room = 7";
    assert_eq!(db.count(booked).await, 3);
    Bookings { pool }.cancel(7).await.unwrap();
    assert_eq!(db.count(booked).await, 0);
    db.until_no_locks().await;
}

/// Whether calls that need a session are refused, as the setting demands.
async fn are_sessions_refused(url: &str) -> bool {
    let mut conn = AsyncPgConnection::establish(url).await.unwrap();
    let strict = Request::new(7).isolation(Isolation::Serializable);
    let strict = match xact::begin(&mut conn, strict).await {
        Ok(held) => held.finish(Ok(())).await,
        Err(error) => Err(error),
    };
    let session = match session::acquire(&mut conn, 7).await {
        Ok(held) => held.finish(Ok(())).await,
        Err(error) => Err(error),
    };
    match (strict, session) {
        (Ok(()), Ok(())) => false,
        (Err(Error::PooledSession { .. }), Err(Error::PooledSession { .. })) => true,
        // There the first session-level call of a process reads the setting.
        (Err(Error::PooledSession { .. }), Ok(())) if !debug_checks_are_on() => true,
        ends => panic!("{ends:?}"),
    }
}

#[tokio::test]
async fn a_roles_setting_declares_a_pooler_in_transaction_mode() {
    let db = Database::create().await;
    // A role belongs to the server, so it has another name than on the page.
    let role = format!("app_of_the_guide_{}", std::process::id());
    db.run(&format!("CREATE ROLE {role} LOGIN")).await;
    let (scheme, address) = db.url().split_once("://").unwrap();
    let address = address.rsplit_once('@').map_or(address, |(_, host)| host);
    let url = format!("{scheme}://{role}@{address}");
    assert!(!are_sessions_refused(&url).await);
    let page = include_str!("../../../../advisory-runtime/docs/connections.md");
    let setting = crate::guide::sql(page, "advisory.pooler");
    db.run(&setting.replace("ROLE app ", &format!("ROLE {role} ")))
        .await;
    assert!(are_sessions_refused(&url).await);
    db.run(&format!("DROP ROLE {role}")).await;
}
