//! Both directions of the migration: what they create, drop, and leave unchanged.

use crate::{migrate, migrated, says};
use advisory_runtime::sql_functions::{ADVISORY_KEYS_DOWN, ADVISORY_KEYS_UP};
use advisory_tests::{BACKSLASH_ESCAPES, Database};
use diesel_async::SimpleAsyncConnection;

#[tokio::test]
async fn up_and_down_leave_nothing() {
    const CATALOG: &str = "SELECT (SELECT count(*) FROM pg_proc) + 1000 * (SELECT count(*) FROM pg_depend) \
         + 1000000 * (SELECT count(*) FROM pg_description) \
         + 1000000000 * (SELECT count(*) FROM pg_shdepend JOIN pg_database ON oid = dbid WHERE datname = current_database())";
    let db = Database::create().await;
    let mut conn = db.connect().await;
    db.run("CREATE SCHEMA elsewhere").await;
    let before = db.count(CATALOG).await;
    for session in [
        "SET search_path = public",
        "SET search_path = elsewhere, public",
        BACKSLASH_ESCAPES,
    ] {
        conn.batch_execute(session).await.unwrap();
        migrate(&mut conn, ADVISORY_KEYS_UP).await.unwrap();
        assert!(
            says(
                &mut conn,
                "count(*) = 8 FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
            )
            .await,
            "{session}"
        );
        assert!(
            says(&mut conn, "advisory_key('booking:1') = 3878245474506011689").await,
            "{session}"
        );
        migrate(&mut conn, ADVISORY_KEYS_DOWN).await.unwrap();
        assert_eq!(db.count(CATALOG).await, before, "{session}");
    }
}

#[tokio::test]
async fn nobodys_function_is_replaced() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    db.run("CREATE FUNCTION release_cleanup_lock(text) RETURNS boolean LANGUAGE sql AS 'SELECT NULL::boolean'")
        .await;
    let error = migrate(&mut conn, ADVISORY_KEYS_UP).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "function \"release_cleanup_lock\" already exists with same argument types"
    );
    assert!(says(&mut conn, "release_cleanup_lock('a') IS NULL").await);
    assert!(
        says(&mut conn, "to_regproc('advisory_key') IS NULL").await,
        "all or nothing"
    );
}

#[tokio::test]
async fn a_function_that_is_used_is_not_dropped() {
    let (db, mut conn) = migrated().await;
    db.run("CREATE TABLE guest (email text); CREATE INDEX ON guest (email_to_lock_id(email))")
        .await;
    migrate(&mut conn, ADVISORY_KEYS_DOWN).await.unwrap_err();
    assert!(
        says(&mut conn, "to_regproc('advisory_key') IS NOT NULL").await,
        "all or nothing"
    );
}
