//! Permits when the query for one cannot be prepared, as behind a pooler that does not track
//! prepared statements.

use advisory_runtime::{Error, Request, Wait, xact};
use advisory_tests::permits::{PERMITS, held};
use advisory_tests::{Database, Proxy, assert_error};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

/// Another program's statement can have its name.
#[tokio::test]
async fn a_permit_is_taken_by_text_if_statements_cannot_be_prepared() {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let request = Request::new(42).permits(3).wait(Wait::Never);
    for (others, key) in PERMITS.into_iter().map(Some).chain([None]).enumerate() {
        loop {
            take_names(&mut conn).await;
            proxy.reset();
            let begun = xact::begin(&mut conn, request.clone()).await;
            if others < PERMITS.len() {
                let guard = begun.unwrap();
                assert_eq!(held(&db).await.len(), others + 1);
                guard.finish(Ok::<_, Error>(())).await.unwrap();
            } else {
                assert_error!(begun, NotAvailable);
            }
            if is_by_text(&proxy) {
                break;
            }
        }
        if let Some(key) = key {
            db.run(&format!("SELECT pg_advisory_lock({key})")).await;
        }
    }
}

/// The server does not say which permit it is, and other sessions hold the other ones.
#[tokio::test]
async fn a_check_finds_only_the_permit_that_was_taken_by_text() {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let request = Request::new(42).permits(3).wait(Wait::Never);
    for other in PERMITS {
        loop {
            take_names(&mut conn).await;
            proxy.reset();
            let mut guard = xact::begin(&mut conn, request.clone()).await.unwrap();
            let acquired = guard.info();
            acquired.check(guard.conn()).await.unwrap();
            guard.conn().batch_execute("ROLLBACK").await.unwrap();
            assert_error!(acquired.check(guard.conn()).await, LockLost);
            assert_error!(guard.finish(Ok::<_, Error>(())).await, TransactionEnded);
            if is_by_text(&proxy) {
                break;
            }
        }
        db.run(&format!("SELECT pg_advisory_lock({other})")).await;
    }
}

#[tokio::test]
async fn a_miss_by_text_under_a_savepoint_is_a_miss() {
    let db = Database::create().await;
    db.run("SELECT pg_advisory_lock(7)").await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let mut outer = xact::begin(&mut conn, 8).await.unwrap();
    loop {
        take_names(outer.conn()).await;
        proxy.reset();
        let tried = Request::new(7).wait(Wait::Never);
        let error = xact::begin(outer.conn(), tried).await.map(drop);
        assert_error!(error, NotAvailable);
        if is_by_text(&proxy) {
            break;
        }
    }
    outer.finish(Ok::<_, Error>(())).await.unwrap();
}

/// Whether the last try sent its query as text. Other tests of this process can have used all of
/// the names meanwhile.
fn is_by_text(proxy: &Proxy) -> bool {
    let asks = "EXISTS(SELECT 1 ";
    proxy.queries().iter().any(|query| query.contains(asks))
}

/// Uses up the names that this process gives to its next statements, on all of its connections.
async fn take_names(conn: &mut AsyncPgConnection) {
    conn.batch_execute("DEALLOCATE ALL").await.unwrap();
    let name = diesel::dsl::sql::<diesel::sql_types::Text>(
        "SELECT name FROM pg_prepared_statements ORDER BY prepare_time DESC LIMIT 1",
    );
    let name: String = name.get_result(conn).await.unwrap();
    let last: usize = name.trim_start_matches('s').parse().unwrap();
    let names = last + 1..last + 500;
    let taken: Vec<String> = names
        .map(|next| format!("PREPARE s{next} AS SELECT 1"))
        .collect();
    conn.batch_execute(&taken.join(";")).await.unwrap();
}
