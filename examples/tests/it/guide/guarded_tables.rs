use advisory_runtime::sql_functions::ADVISORY_KEYS_UP;
use advisory_runtime::{Error, lock_key, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

#[tokio::test]
async fn a_guard_in_ones_own_sql_refuses_a_session_without_the_lock() {
    let page = include_str!("../../../../advisory-runtime/docs/guarded-tables.md");
    let require = crate::guide::sql(page, "advisory_require");
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.batch_execute(ADVISORY_KEYS_UP).await.unwrap();
    db.run("CREATE TABLE draft AS SELECT 'a:b'::text AS guest")
        .await;
    let run = async |conn: &mut AsyncPgConnection| -> QueryResult<usize> {
        diesel::sql_query(require).execute(conn).await
    };
    let error = run(&mut conn).await.unwrap_err().to_string();
    assert!(error.contains("does not hold"), "{error}");
    let guest = "a:b";
    let key = lock_key!("booking:<guest>");
    let mut held = xact::begin(&mut conn, key).await.unwrap();
    let is_held = run(held.conn()).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(is_held, Ok(1));
}
