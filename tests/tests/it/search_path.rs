//! The SQL means the same whatever comes first on the `search_path`.

use crate::calls::book;
use advisory_runtime::{Error, Isolation, Request, Wait, advisory_lock, session, xact};
use advisory_tests::bookings::{committed, database, execute, key_of, run};
use advisory_tests::dropped_call::until_ended;
use advisory_tests::futures::spawn;
use advisory_tests::{LockedKey, assert_matches, pid_of};
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Duration;

/// Objects with the names that the SQL uses, which do nothing, or the wrong thing.
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
async fn hostile_objects_on_the_search_path_change_nothing() {
    let db = database().await;
    db.run(HOSTILE).await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    for conn in [&mut first, &mut second] {
        run(conn, "SET search_path = public, pg_catalog").await;
    }
    let held = xact::begin(&mut first, key_of(7)).await.unwrap();
    assert_eq!(db.locks().await.len(), 1, "a real lock");
    let waiting = spawn(async move {
        let booked = book(&mut second, 7, "Ada").await;
        (booked, second)
    });
    db.until_waiting(key_of(7)).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
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
            .all(|sql| !sql.contains("DROP") && !sql.contains("booking")),
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
    db.run(MORE_HOSTILE).await;
    let mut conn = db.connect().await;
    run(&mut conn, "SET search_path = public, pg_catalog").await;

    let held = xact::begin(&mut conn, (7, -3)).await.unwrap();
    let keys: Vec<_> = db.locks().await.iter().map(|lock| lock.key).collect();
    assert_eq!(keys, [LockedKey::Pair(7, -3)]);
    held.finish(Ok::<_, Error>(())).await.unwrap();

    let bounded = Request::new(1).max_hold(Duration::from_secs(60));
    let mut held = xact::begin(&mut conn, bounded).await.unwrap();
    assert_eq!(
        setting(held.conn(), "client_connection_check_interval").await,
        "1s"
    );
    held.finish(Ok::<_, Error>(())).await.unwrap();

    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(8)).await.unwrap();
    run(&mut conn, "SET lock_timeout = '50ms'").await;
    let error = book(&mut conn, 8, "Ada").await.unwrap_err();
    assert!(
        Error::find(&error).is_some_and(|error| error.is_busy()),
        "{error:?}"
    );
    held.finish(Ok::<_, Error>(())).await.unwrap();

    every_request(&mut conn, &db).await;

    // A dropped call ends its session, on a connection of our own and on a pooled one.
    let pid = pid_of(&mut conn).await;
    drop(xact::begin(&mut conn, 2).await.unwrap());
    execute(&mut conn, "SELECT 1").await.unwrap_err();
    until_ended(&db, pid, "a dropped call").await;
    let pool = db.bb8(1).await;
    let mut pooled = pool.get().await.unwrap();
    run(&mut pooled, "SET search_path = public, pg_catalog").await;
    drop(xact::begin(&mut pooled, 2).await.unwrap());
    let error = execute(&mut pooled, "SELECT 1").await.unwrap_err();
    assert_matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, _),
        "the session has ended itself"
    );
}

#[tokio::test]
async fn hostile_objects_made_after_the_first_call_are_harmless() {
    let db = database().await;
    let mut conn = db.connect().await;
    every_request(&mut conn, &db).await;
    db.run(HOSTILE).await;
    db.run(MORE_HOSTILE).await;
    for mode in ["auto", "force_generic_plan"] {
        let set = format!("SET plan_cache_mode = {mode}; SET search_path = public, pg_catalog");
        conn.batch_execute(&set).await.unwrap();
        every_request(&mut conn, &db).await;
    }
}

/// The same for waits, levels, session-level locks and bounds.
const MORE_HOSTILE: &str = "
    CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE FUNCTION public.pg_sleep(double precision) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION public.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 0';
    CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
    CREATE FUNCTION public.ceil(double precision) RETURNS double precision LANGUAGE sql AS 'SELECT NULL::float8';
    CREATE FUNCTION public.date_part(text, interval) RETURNS double precision LANGUAGE sql AS 'SELECT NULL::float8';
    CREATE FUNCTION public.split_part(text, text, int) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.current_database() RETURNS name LANGUAGE sql AS 'SELECT NULL::name';
    CREATE FUNCTION public.count() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint';
    CREATE FUNCTION public.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE FUNCTION public.pg_advisory_lock(bigint) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION public.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE FUNCTION public.pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE FUNCTION public.differs(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.<> (FUNCTION = public.differs, LEFTARG = text, RIGHTARG = text);
    CREATE FUNCTION public.same(int4, int4) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE VIEW public.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false;
    CREATE VIEW public.pg_database AS SELECT * FROM pg_catalog.pg_database WHERE false;
    CREATE DOMAIN public.interval AS text CHECK (false);
    CREATE DOMAIN public.float8 AS text CHECK (false);
    CREATE DOMAIN public.oid AS text CHECK (false);
";

/// Every kind of request, granted and refused.
async fn every_request(conn: &mut AsyncPgConnection, db: &advisory_tests::Database) {
    let short = Duration::from_millis(30);
    let requests = || {
        let plain = [Request::new(1), Request::all([1, 2]).shared()];
        let waits = [Wait::Never, Wait::For(short), Wait::Forever];
        plain.into_iter().flat_map(move |plain| {
            waits.into_iter().flat_map(move |wait| {
                let unbounded = plain.clone().wait(wait);
                [
                    unbounded.clone().max_hold(Duration::from_secs(60)),
                    unbounded,
                ]
            })
        })
    };
    let permits = [Request::new(1).permits(3), Request::new(1).poll(short)];
    for request in requests().chain(permits) {
        let strict = request.clone().isolation(Isolation::Serializable);
        for request in [request.clone(), strict] {
            let held = xact::begin(conn, request.clone()).await.unwrap();
            assert!(!db.locks().await.is_empty(), "{request:?}");
            held.finish(Ok::<_, Error>(())).await.unwrap();
        }
        let held = session::acquire(conn, request.clone()).await.unwrap();
        assert!(!db.locks().await.is_empty(), "{request:?}");
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(db.locks().await, [], "{request:?}");
    }
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, Request::all([1, 2]))
        .await
        .unwrap();
    for request in requests().filter(|request| !format!("{request:?}").contains("Forever")) {
        let strict = request.clone().isolation(Isolation::Serializable);
        for request in [request.clone(), strict] {
            let error = xact::begin(conn, request).await.unwrap_err();
            assert!(error.is_busy(), "{error:?}");
        }
        let error = session::acquire(conn, request).await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        assert_eq!(db.locks().await.len(), 2);
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

async fn setting(conn: &mut AsyncPgConnection, name: &str) -> String {
    let sql = format!("SELECT pg_catalog.current_setting('{name}', true)");
    diesel::dsl::sql::<diesel::sql_types::Text>(&sql)
        .get_result(conn)
        .await
        .unwrap()
}

#[tokio::test]
async fn transaction_settings_end_with_it_and_the_users_stay() {
    let db = database().await;
    let mut conn = db.connect().await;
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
    assert_eq!(
        setting(&mut conn, "client_connection_check_interval").await,
        "0"
    );
    // Only `max_hold` sets it.
    let bounded = Request::new(1).max_hold(Duration::from_secs(60));
    // In a transaction of the call's own, whatever the session has.
    for (own, plain, nested) in [("0", "0", "1s"), ("5s", "5s", "5s")] {
        let set = format!("SET client_connection_check_interval = '{own}'");
        run(&mut conn, &set).await;
        let requests = [
            (Request::new(1), plain, plain),
            (bounded.clone(), "1s", nested),
        ];
        for (request, expected, nested) in requests {
            let mut held = xact::begin(&mut conn, request.clone()).await.unwrap();
            let interval = setting(held.conn(), "client_connection_check_interval").await;
            assert_eq!(interval, expected, "{own}");
            held.finish(Ok::<_, Error>(())).await.unwrap();
            let mut outer = xact::begin(&mut conn, 2).await.unwrap();
            let mut held = xact::begin(outer.conn(), request).await.unwrap();
            let interval = setting(held.conn(), "client_connection_check_interval").await;
            assert_eq!(interval, nested, "{own}, nested");
            held.finish(Ok::<_, Error>(())).await.unwrap();
            let interval = setting(outer.conn(), "client_connection_check_interval").await;
            assert_eq!(interval, plain, "{own}, behind the nested call");
            outer.finish(Ok::<_, Error>(())).await.unwrap();
        }
        let interval = setting(&mut conn, "client_connection_check_interval").await;
        assert_eq!(interval, plain);
    }
}
