//! A call on a connection with a transaction that Diesel does not know about is refused, and leaves
//! no lock on the session.

use super::super::{begin, connect, run};
use advisory_runtime::{Isolation, Request, Wait};
use advisory_tests::{Database, assert_error};
use std::time::Duration;

const BEGUN: [&str; 2] = ["BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE"];

fn requests() -> impl Iterator<Item = Request> {
    let levels = [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];
    levels.into_iter().flat_map(|level| {
        let asked = [
            Request::new(7).wait(Wait::Never),
            Request::new(7).permits(2).wait(Wait::Never),
            Request::all([7, 8]).wait(Wait::Never),
            Request::new(7).wait(Duration::from_secs(5)),
            Request::new(7),
        ];
        asked.map(|request| request.isolation(level))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_inside_it_is_refused_and_leaves_no_lock() {
    let db = Database::create().await;
    for begun in BEGUN {
        for request in requests() {
            let mut conn = connect(&db).await;
            run(&mut conn, begun).await;
            run(&mut conn, "SELECT 1").await;
            let asked = format!("{begun}: {request:?}");
            let refused = begin(&mut conn, request).await.map(drop);
            assert_error!(refused, ForeignTransaction, "{asked}");
            run(&mut conn, "ROLLBACK").await;
            assert_eq!(db.locks().await, [], "{asked}");
        }
    }
}

/// Its check runs the transaction's first query.
#[tokio::test(flavor = "multi_thread")]
async fn a_strict_try_is_refused_in_a_transaction_without_a_query() {
    let db = Database::create().await;
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let mut conn = connect(&db).await;
        run(&mut conn, "BEGIN").await;
        let strict = Request::new(7).wait(Wait::Never).isolation(isolation);
        let refused = begin(&mut conn, strict).await.map(drop);
        assert_error!(refused, ForeignTransaction, "{isolation:?}");
        drop(conn);
        db.until_no_locks().await;
    }
}
