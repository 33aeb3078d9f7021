//! The SQL means what it says whatever stands first on the `search_path`.

use crate::bookings::{book, committed, database, execute, key_of};
use advisory_runtime::{advisory_lock, xact};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};

/// Twins of what the SQL uses, which do nothing, or the wrong thing.
const HOSTILE: &str = "
    CREATE FUNCTION public.pg_advisory_xact_lock(int) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION public.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT ''serializable''';
    CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
    CREATE FUNCTION public.pg_sleep(double precision) RETURNS void LANGUAGE sql AS '';
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
    xact::finish(held, Ok::<_, advisory_runtime::Error>(()))
        .await
        .unwrap();
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
