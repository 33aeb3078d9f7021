//! A fencing token in a column of the user's own table.

use advisory_runtime::lease::{self, FencingToken};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

diesel::table! {
    report (id) { id -> BigInt, token -> BigInt, refused -> Nullable<BigInt> }
}

#[tokio::test]
async fn a_token_is_bound_and_compared_as_a_bigint() {
    let db = Database::create().await;
    db.run("CREATE TABLE report (id int8 PRIMARY KEY, token int8 NOT NULL, refused int8)")
        .await;
    let mut conn = db.connect().await;
    let leases = lease::Leases::in_memory();
    let mut tokens = Vec::new();
    for key in ["a", "b"] {
        let guard = leases.acquire(lease::Request::text(key)).await.unwrap();
        tokens.push(guard.lease().token());
        guard.finish(Ok::<_, lease::Error>(())).await.unwrap();
    }
    let [older, newer]: [FencingToken; 2] = tokens.try_into().unwrap();
    let row = (
        report::id.eq(1),
        report::token.eq(newer),
        report::refused.eq(older),
    );
    let insert = diesel::insert_into(report::table).values(row);
    insert.execute(&mut conn).await.unwrap();
    // As storage that has seen a token refuses an older one.
    let written = async |conn: &mut AsyncPgConnection, token: FencingToken| {
        let current = report::table.filter(report::token.le(token));
        let update = diesel::update(current).set(report::token.eq(token));
        update.execute(conn).await.unwrap()
    };
    assert_eq!(written(&mut conn, older).await, 0);
    assert_eq!(written(&mut conn, newer).await, 1);
    let by_sql = diesel::sql_query("UPDATE report SET token = $1 WHERE token = $1");
    let by_sql = by_sql.bind::<BigInt, _>(newer).execute(&mut conn).await;
    assert_eq!(by_sql.unwrap(), 1);
}
