//! From its second call on a session says little: the statements are prepared. Whoever takes them away loses no lock and no booking.

use crate::bookings::{committed, database, execute, insert};
use advisory_runtime::{Error, Request, Wait, session, xact};
use advisory_tests::{Bouncer, Database, Proxy, left_out};
use diesel::sql_types::Text;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scope {
    Xact,
    Session,
}

const SCOPES: [Scope; 2] = [Scope::Xact, Scope::Session];

fn requests(scope: Scope) -> Vec<Request> {
    let seconds = Duration::from_secs(30);
    let mut requests = vec![
        Request::new(7),
        Request::new(7).shared(),
        Request::new(7).wait(seconds),
        Request::new(7).wait(Wait::Forever),
        Request::new(7).wait(Wait::Never),
        Request::new(7).shared().wait(Wait::Never),
    ];
    if scope == Scope::Xact {
        let several = Request::all([7, 8, 9]);
        requests.extend([
            Request::new(7).max_hold(seconds),
            Request::new(7).wait(Wait::Never).max_hold(seconds),
            several.clone().max_hold(seconds),
            several.clone().wait(Wait::Forever),
            several.shared(),
        ]);
    }
    requests
}

/// A locked call; what the body sees of the session.
async fn call(
    conn: &mut AsyncPgConnection,
    scope: Scope,
    request: &Request,
) -> Result<String, Error> {
    let mut held = match scope {
        Scope::Xact => xact::begin(conn, request.clone()).await?,
        Scope::Session => session::acquire(conn, request.clone()).await?,
    };
    let seen = settings(held.conn()).await.map_err(Error::Database);
    xact::finish(held, seen).await
}

async fn settings(conn: &mut AsyncPgConnection) -> diesel::QueryResult<String> {
    let query = "concat_ws(' ', current_setting('lock_timeout'), current_setting('client_connection_check_interval'), \
         current_setting('application_name'), current_setting('transaction_isolation'), \
         current_setting('idle_in_transaction_session_timeout'), current_setting('transaction_timeout', true), \
         (SELECT string_agg(mode, ',') FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))";
    diesel::select(diesel::dsl::sql::<Text>(query))
        .get_result(conn)
        .await
}

async fn proxied() -> (Database, Proxy, AsyncPgConnection) {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    conn.batch_execute(
        "SET lock_timeout = '77s'; SET default_transaction_isolation = 'serializable'; SET application_name = 'shop'",
    )
    .await
    .unwrap();
    proxy.reset();
    (db, proxy, conn)
}

/// What the first query has prepared.
fn names(proxy: &Proxy) -> Vec<String> {
    proxy.queries()[0]
        .split("PREPARE ")
        .filter_map(|text| text.split('(').next())
        .filter(|name| name.starts_with("advisory_"))
        .map(ToOwned::to_owned)
        .collect()
}

#[tokio::test]
async fn a_second_call_says_less_and_does_the_same() {
    for scope in SCOPES {
        for request in requests(scope) {
            let (_db, proxy, mut conn) = proxied().await;
            let mut seen = Vec::new();
            let mut said = Vec::new();
            for _ in 0..3 {
                proxy.reset();
                seen.push(call(&mut conn, scope, &request).await.unwrap());
                let queries = proxy.queries();
                assert_eq!(queries.len(), 2, "{scope:?} {request:?} {queries:#?}");
                said.push(queries.concat());
            }
            assert!(
                seen[0].contains("77s") && seen[0].contains("Lock"),
                "{seen:?}"
            );
            assert!(seen.iter().all(|one| *one == seen[0]), "{seen:#?}");
            assert!(
                said[0].contains("PREPARE ") && said[0].contains("EXECUTE "),
                "{said:#?}"
            );
            for again in &said[1..] {
                assert!(
                    !again.contains("PREPARE ") && again.contains("EXECUTE ") && again.len() < 500,
                    "{again}"
                );
            }
            let after = settings(&mut conn).await.unwrap();
            assert!(after.starts_with("77s 0 shop"), "{after}");
        }
    }
}

#[tokio::test]
async fn a_session_that_has_lost_its_statements_locks_all_the_same() {
    for scope in SCOPES {
        for request in requests(scope) {
            let (_db, proxy, mut conn) = proxied().await;
            let seen = call(&mut conn, scope, &request).await.unwrap();
            // Not Diesel's own, without which no query of the program goes through.
            for name in names(&proxy) {
                conn.batch_execute(&format!("DEALLOCATE {name}"))
                    .await
                    .unwrap();
            }
            assert_eq!(call(&mut conn, scope, &request).await.unwrap(), seen);
            // It is not trusted a second time.
            proxy.reset();
            assert_eq!(call(&mut conn, scope, &request).await.unwrap(), seen);
            let queries = proxy.queries();
            assert!(
                queries.len() == 2 && !queries.concat().contains("EXECUTE "),
                "{queries:#?}"
            );
        }
    }
}

#[tokio::test]
async fn a_session_that_has_a_statement_of_that_name_locks_all_the_same() {
    for scope in SCOPES {
        for request in requests(scope) {
            let (_db, proxy, mut conn) = proxied().await;
            call(&mut conn, scope, &request).await.unwrap();
            let names = names(&proxy);
            assert!(names.len() > 2, "{names:?}");
            for name in names {
                let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
                conn.batch_execute(&format!("PREPARE {name} AS SELECT 1"))
                    .await
                    .unwrap();
                let seen = call(&mut conn, scope, &request).await.unwrap();
                assert!(seen.contains("Lock"), "{name}: {seen}");
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_takes_the_statements_away_commits_nothing_and_leaves_no_lock() {
    let (db, _proxy, mut conn) = proxied().await;
    for _ in 0..2 {
        let mut held = xact::begin(&mut conn, Request::new(7)).await.unwrap();
        insert(held.conn(), 7, "Ada").await.unwrap();
        held.conn().batch_execute("DEALLOCATE ALL").await.unwrap();
        let ended = xact::finish(held, Ok::<_, Error>(())).await;
        match committed(&db, 7).await {
            0 => assert!(matches!(ended, Err(Error::RolledBack { .. })), "{ended:?}"),
            _ => ended.expect("what is committed is reported so"),
        }
        assert!(db.locks().await.is_empty());
    }
    // The second time the session went without.
    assert_eq!(committed(&db, 7).await, 1);
    let (db, _proxy, mut conn) = proxied().await;
    for _ in 0..2 {
        let mut held = session::acquire(&mut conn, Request::new(7)).await.unwrap();
        held.conn().batch_execute("DEALLOCATE ALL").await.unwrap();
        assert_eq!(db.locks().await.len(), 1);
        session::release(held, Ok::<_, Error>(())).await.unwrap();
        assert!(db.locks().await.is_empty());
    }
}

#[tokio::test]
async fn what_a_failed_wait_has_prepared_is_known() {
    let (db, proxy, mut conn) = proxied().await;
    db.run("SELECT pg_advisory_lock(7)").await;
    for scope in SCOPES {
        let request = Request::new(7).wait(Duration::from_millis(1));
        for is_first in [true, false] {
            proxy.reset();
            call(&mut conn, scope, &request).await.unwrap_err();
            let said = proxy.queries().remove(0);
            assert_eq!(said.contains("PREPARE "), is_first, "{said}");
        }
    }
    db.run("SELECT pg_advisory_unlock(7)").await;
    execute(&mut conn, "SELECT 1").await.unwrap();
}

#[tokio::test]
async fn behind_a_pooler_nothing_is_prepared() {
    let db = database().await;
    let settings = "pool_mode = transaction\ndefault_pool_size = 1";
    let bouncer = match Bouncer::start(&db, settings).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out("pgbouncer", why),
    };
    let mut conn = AsyncPgConnection::establish(&bouncer.url(&db))
        .await
        .unwrap();
    for _ in 0..2 {
        let held = xact::begin(&mut conn, Request::new(7)).await.unwrap();
        assert_eq!(db.locks().await.len(), 1);
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    }
    // Seen from inside: a statement of ours would be refused for its name.
    conn.batch_execute("PREPARE advisory_1_check AS SELECT 1")
        .await
        .expect("no statement of this name");
}
