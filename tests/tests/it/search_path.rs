//! The SQL means what it says whatever stands first on the `search_path`.

use crate::bookings::{book, committed, database, execute, key_of};
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::LockedKey;
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

/// Twins of what the SQL uses, which do nothing, or the wrong thing.
const HOSTILE: &str = "
    CREATE FUNCTION public.pg_advisory_xact_lock(int) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION public.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT ''serializable''';
    CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
    CREATE FUNCTION public.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.never, LEFTARG = text, RIGHTARG = text);
    CREATE DOMAIN public.int8 AS text CHECK (false);
    CREATE DOMAIN public.int4 AS text CHECK (false);
";

#[tokio::test]
async fn hostile_functions_operators_and_types_first_on_the_search_path_change_nothing() {
    let db = database().await;
    db.run(HOSTILE).await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    for conn in [&mut first, &mut second] {
        execute(conn, "SET search_path = public, pg_catalog")
            .await
            .unwrap();
    }
    let held = xact::begin(&mut first, key_of(7)).await.unwrap();
    assert_eq!(db.locks().await.len(), 1, "a real lock");
    let waiting = tokio::spawn(async move {
        let booked = book(&mut second, 7, "Ada").await;
        (booked, second)
    });
    db.until_waiting(key_of(7)).await;
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    let (booked, mut second) = waiting.await.unwrap();
    assert!(booked.unwrap());
    second
        .transaction::<_, diesel::result::Error, _>(async |conn| book(conn, 8, "Ada").await)
        .await
        .unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [1, 1]);
}

#[tokio::test]
async fn values_of_a_key_never_reach_the_sql() {
    #[advisory_lock(key = "guest:<guest>", scope = "xact")]
    async fn greet(conn: &mut AsyncPgConnection, guest: &str) -> QueryResult<usize> {
        execute(conn, "SELECT 1").await
    }
    let db = database().await;
    let proxy = advisory_tests::Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    greet(&mut conn, "'; DROP TABLE booking; --").await.unwrap();
    assert!(
        proxy
            .queries()
            .iter()
            .all(|sql| !sql.contains("DROP") && !sql.contains("guest")),
        "{:#?}",
        proxy.queries()
    );
    assert_eq!(committed(&db, 7).await, 0, "the table is still there");
}

#[tokio::test]
async fn hostile_twins_do_not_pass_for_the_rest_either() {
    let db = database().await;
    db.run(HOSTILE).await;
    db.run(
        "CREATE FUNCTION public.pg_advisory_xact_lock(int, int) RETURNS void LANGUAGE sql AS '';
         CREATE FUNCTION public.pg_terminate_backend(int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
         CREATE FUNCTION public.nowhen(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR public.= (FUNCTION = public.nowhen, LEFTARG = timestamptz, RIGHTARG = timestamptz);
         CREATE FUNCTION public.strpos(text, text) RETURNS int LANGUAGE sql AS 'SELECT 0';
         CREATE FUNCTION public.version() RETURNS text LANGUAGE sql AS $$SELECT ''::text$$;
         CREATE FUNCTION public.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
         CREATE VIEW public.pg_settings AS SELECT 'lock_timeout'::text AS name, '0'::text AS setting;
         CREATE FUNCTION public.left(text, int) RETURNS text LANGUAGE sql AS $$SELECT 'none'::text$$;",
    )
    .await;
    let mut conn = db.connect().await;
    execute(&mut conn, "SET search_path = public, pg_catalog")
        .await
        .unwrap();

    let held = xact::begin(&mut conn, (7, -3)).await.unwrap();
    let keys: Vec<_> = db.locks().await.iter().map(|lock| lock.key).collect();
    assert_eq!(keys, [LockedKey::Pair(7, -3)]);
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();

    let mut held = xact::begin(&mut conn, 1).await.unwrap();
    assert_eq!(
        setting(held.conn(), "client_connection_check_interval").await,
        "1s"
    );
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();

    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(8)).await.unwrap();
    execute(&mut conn, "SET lock_timeout = '50ms'")
        .await
        .unwrap();
    let error = book(&mut conn, 8, "Ada").await.unwrap_err();
    assert!(Error::find(&error).is_some_and(Error::is_busy), "{error:?}");
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();

    drop(xact::begin(&mut conn, 2).await.unwrap());
    let error = execute(&mut conn, "SELECT 1").await.unwrap_err();
    assert!(
        matches!(
            error,
            DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, _)
        ),
        "the session has ended itself: {error:?}"
    );
}

async fn setting(conn: &mut AsyncPgConnection, name: &str) -> String {
    let sql = format!("SELECT pg_catalog.current_setting('{name}', true)");
    diesel::dsl::sql::<diesel::sql_types::Text>(&sql)
        .get_result(conn)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_is_set_for_the_transaction_ends_with_it_and_what_the_user_set_stays() {
    let db = database().await;
    let mut conn = db.connect().await;
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
    assert_eq!(
        setting(&mut conn, "client_connection_check_interval").await,
        "0"
    );
    assert_eq!(setting(&mut conn, "advisory.token").await, "");
    execute(&mut conn, "SET client_connection_check_interval = '5s'")
        .await
        .unwrap();
    let mut held = xact::begin(&mut conn, 1).await.unwrap();
    assert_eq!(
        setting(held.conn(), "client_connection_check_interval").await,
        "5s"
    );
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    conn.transaction::<_, DieselError, _>(async |conn| {
        execute(conn, "SET LOCAL client_connection_check_interval = 0").await?;
        book(conn, 8, "Ada").await?;
        let interval = setting(conn, "client_connection_check_interval").await;
        assert_eq!(interval, "1s", "nested calls wait too");
        Ok(())
    })
    .await
    .unwrap();
}
