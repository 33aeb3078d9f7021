//! Locks around two others that make a deadlock between them impossible.
#![cfg(debug_assertions)]

use crate::calls::locked;
use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use advisory_tests::lock_order::{edges, order};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};

/// A call that locks two rows, one after the other, under its own lock.
macro_rules! import {
    ($import:ident $key:literal $(, $more:ident = $value:tt)* => $row:ident $pattern:literal) => {
        locked!($row(id) $pattern, name = $pattern);

        #[advisory_lock(key = $key $(, $more = $value)*)]
        async fn $import(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
            $row(conn, id).await?;
            $row(conn, id + 1).await
        }
    };
}

import!(one "gate" => row "gated:<id>");
import!(of_each "gate-each:<id>" => row_of_each "each-row:<id>");
import!(shared "gate-shared", mode = "shared" => row_of_shared "shared-row:<id>");
import!(permits "gate-permits", permits = 2, poll = "5ms" => row_of_permits "permits-row:<id>");

#[tokio::test]
async fn only_one_exclusive_lock_around_both_rules_a_deadlock_out() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    one(&mut conn, 1).await.unwrap();
    of_each(&mut conn, 1).await.unwrap();
    shared(&mut conn, 1).await.unwrap();
    permits(&mut conn, 1).await.unwrap();
    assert_eq!(edges("gated:"), ["gated:<id> > gated:<id>"]);
    assert!(order("gated:").cycles.is_empty());
    for row in ["each-row:", "shared-row:", "permits-row:"] {
        assert_eq!(order(row).cycles.len(), 1, "{row}");
    }
}

locked!(row_of_some(id) "some-row:<id>");

async fn two_rows(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    row_of_some(conn, 1).await?;
    row_of_some(conn, 2).await
}

#[advisory_lock(key = "gate-some")]
async fn import_some(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    two_rows(conn).await
}

#[tokio::test]
async fn a_lock_that_one_call_did_without_rules_nothing_out() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    import_some(&mut conn).await.unwrap();
    assert_eq!(edges("some-row:").len(), 1);
    assert!(order("some-row:").cycles.is_empty());
    conn.transaction(async |conn| two_rows(conn).await)
        .await
        .unwrap();
    import_some(&mut conn).await.unwrap();
    assert_eq!(order("some-row:").cycles.len(), 1);
}
