//! The lease table itself: its migration, other names, refused operations, and objects first on the
//! `search_path`.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP, Error, Request, Table};
use advisory_tests::Database;
use advisory_tests::bookings::execute;
use advisory_tests::leases::{FIRST, database, key};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_migration_goes_up_and_down_and_up_again() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let left = "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'advisory%') \
                + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'advisory%')";
    for _ in 0..2 {
        for (side, is_up) in [(ADVISORY_LEASE_UP, true), (ADVISORY_LEASE_DOWN, false)] {
            // Like Diesel's harness.
            let ran = conn.transaction(async |conn| conn.batch_execute(side).await);
            ran.await.unwrap();
            if is_up {
                let lease = Table::new().acquire(&mut conn, key("k")).await.unwrap();
                assert_eq!(lease.token().get(), FIRST + 1, "a new sequence");
            }
        }
        assert_eq!(db.count(left).await, 0);
    }
    let error = Table::new().acquire(&mut conn, key("k")).await.unwrap_err();
    assert!(matches!(error, Error::MissingTable { .. }), "{error:?}");
}

#[tokio::test]
async fn tables_of_other_names_are_key_spaces_of_their_own() {
    let db = database().await;
    db.run("CREATE SCHEMA locks; CREATE SCHEMA \"select\"")
        .await;
    let longest = "x".repeat(48);
    let mut conn = db.connect().await;
    for name in ["app_lease", "locks.advisory_lease", "select.table", "_1.x"] {
        if name == "_1.x" {
            db.run("CREATE SCHEMA _1").await;
        }
        its_own(&db, &mut conn, name).await;
    }
    its_own(&db, &mut conn, &format!("locks.{longest}")).await;
}

async fn its_own(db: &Database, conn: &mut AsyncPgConnection, name: &str) {
    let table = Table::new().named(name).unwrap();
    let missing = table.acquire(conn, key("k")).await.unwrap_err();
    assert!(matches!(missing, Error::MissingTable { .. }), "{missing:?}");
    conn.batch_execute(&table.up()).await.unwrap();
    let lease = table.acquire(conn, key("k")).await.unwrap();
    assert!(table.acquire(conn, key("k")).await.unwrap_err().is_held());
    assert_eq!(
        Table::new().find(conn, Request::text("k")).await.unwrap(),
        None
    );
    assert!(table.renew(conn, &lease, TTL).await.unwrap());
    conn.transaction(async |conn| lease.fence(conn).await)
        .await
        .unwrap();
    assert!(table.release(conn, &lease).await.unwrap());
    let quoted = name.replace('.', "\".\"");
    let deleted = execute(conn, &format!("DELETE FROM \"{quoted}\"")).await;
    deleted.unwrap();
    let next = table.acquire(conn, key("k")).await.unwrap();
    assert!(next.token() > lease.token(), "though its row is gone");
    conn.batch_execute(&table.down()).await.unwrap();
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'x%' OR relname IN ('app_lease', 'table')";
    assert_eq!(db.count(left).await, 0);
    assert_eq!(
        db.count("SELECT count(*) FROM public.advisory_lease").await,
        0
    );
}

#[tokio::test]
async fn an_invalid_name_is_refused() {
    let long = "x".repeat(49);
    for wrong in [
        "",
        ".",
        "a.",
        ".a",
        "a.b.c",
        "1a",
        "A",
        "a b",
        "a-b",
        "a\"b",
        "a'b",
        "é",
        "a;",
        "a\0",
        "a. b",
        &long,
        &format!("{long}.a"),
    ] {
        let error = Table::new().named(wrong).expect_err(wrong);
        assert!(matches!(error, Error::InvalidTable { .. }), "{error:?}");
    }
    for wrong in ["x".repeat(256), "a\0".to_owned()] {
        let error = Table::new().held_by(wrong).unwrap_err();
        assert!(matches!(error, Error::InvalidHolder { .. }), "{error:?}");
        assert!(!error.to_string().contains("table"), "{error}");
    }
}

#[tokio::test]
async fn two_that_set_it_up_at_once_make_it_once() {
    let db = Database::create().await;
    let mut making = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut conn = db.connect().await;
        making.spawn(async move { Table::new().set_up(&mut conn).await });
    }
    for made in making.join_all().await {
        made.unwrap();
    }
    let mut conn = db.connect().await;
    let lease = Table::new().acquire(&mut conn, key("k")).await.unwrap();
    Table::new().set_up(&mut conn).await.unwrap();
    assert!(Table::new().holds(&mut conn, &lease).await.unwrap());
}

/// Objects with the names that the statements use, in a schema that comes before all others; a
/// table among them.
const HOSTILE: &str = "
    CREATE SCHEMA hostile;
    CREATE TABLE hostile.advisory_lease (LIKE public.advisory_lease);
    CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
    CREATE FUNCTION hostile.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION hostile.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT ''1h''::text';
    CREATE FUNCTION hostile.left(text, int) RETURNS text LANGUAGE sql AS 'SELECT ''none''::text';
    CREATE FUNCTION hostile.concat(VARIADIC text[]) RETURNS text LANGUAGE sql AS 'SELECT ''taken 99''::text';
    CREATE FUNCTION hostile.concat_ws(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS 'SELECT ''taken 99''::text';
    CREATE FUNCTION hostile.encode(bytea, text) RETURNS text LANGUAGE sql AS 'SELECT ''''::text';
    CREATE FUNCTION hostile.decode(text, text) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
    CREATE FUNCTION hostile.convert_to(text, name) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
    CREATE FUNCTION hostile.convert_from(bytea, name) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION hostile.date_part(text, interval) RETURNS float8 LANGUAGE sql AS 'SELECT NULL::float8';
    CREATE FUNCTION hostile.date_part(text, timestamptz) RETURNS float8 LANGUAGE sql AS 'SELECT NULL::float8';
    CREATE FUNCTION hostile.ceil(float8) RETURNS float8 LANGUAGE sql AS 'SELECT NULL::float8';
    CREATE FUNCTION hostile.octet_length(bytea) RETURNS int LANGUAGE sql AS 'SELECT 0';
    CREATE FUNCTION hostile.to_regclass(text) RETURNS regclass LANGUAGE sql AS 'SELECT NULL::regclass';
    CREATE FUNCTION hostile.string_agg(text, text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION hostile.same_bytes(bytea, bytea) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE OPERATOR hostile.= (FUNCTION = hostile.same_bytes, LEFTARG = bytea, RIGHTARG = bytea);
    CREATE FUNCTION hostile.same_number(int8, int8) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE OPERATOR hostile.= (FUNCTION = hostile.same_number, LEFTARG = int8, RIGHTARG = int8);
    CREATE FUNCTION hostile.same_text(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE OPERATOR hostile.= (FUNCTION = hostile.same_text, LEFTARG = text, RIGHTARG = text);
    CREATE FUNCTION hostile.later(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE OPERATOR hostile.> (FUNCTION = hostile.later, LEFTARG = timestamptz, RIGHTARG = timestamptz);
    CREATE OPERATOR hostile.<= (FUNCTION = hostile.later, LEFTARG = timestamptz, RIGHTARG = timestamptz);
    CREATE FUNCTION hostile.none(int8) RETURNS int8 LANGUAGE sql AS 'SELECT 0::int8';
    CREATE OPERATOR hostile.~ (FUNCTION = hostile.none, RIGHTARG = int8);
    CREATE DOMAIN hostile.int8 AS text CHECK (false);
    CREATE DOMAIN hostile.int4 AS text CHECK (false);
    CREATE DOMAIN hostile.float8 AS text CHECK (false);
    CREATE DOMAIN hostile.text AS int CHECK (false);
    CREATE DOMAIN hostile.bytea AS text CHECK (false);
    CREATE DOMAIN hostile.interval AS text CHECK (false);
    CREATE DOMAIN hostile.timestamptz AS text CHECK (false);
    CREATE DOMAIN hostile.bool AS text CHECK (false);
    CREATE DOMAIN hostile.tid AS text CHECK (false);
    CREATE SEQUENCE hostile.advisory_lease_token;
";

async fn all_but_a_wait(conn: &mut AsyncPgConnection, table: &Table) {
    let request = || key("k").ttl(TTL);
    let lease = table.acquire(conn, request()).await.unwrap();
    assert!(table.acquire(conn, request()).await.unwrap_err().is_held());
    assert!(table.renew(conn, &lease, TTL * 2).await.unwrap());
    assert!(table.holds(conn, &lease).await.unwrap());
    let row = table.find(conn, Request::text("k")).await.unwrap().unwrap();
    assert_eq!(row.key.as_deref(), Some("k"));
    assert!(row.remaining > TTL, "{row:?}");
    assert_eq!(
        table.find(conn, Request::text("other")).await.unwrap(),
        None
    );
    assert_eq!(table.list(conn).await.unwrap().len(), 1);
    conn.transaction(async |conn| lease.fence(conn).await)
        .await
        .unwrap();
    assert!(table.release(conn, &lease).await.unwrap());
    assert!(!table.holds(conn, &lease).await.unwrap());
    let error = conn
        .transaction(async |conn| lease.fence(conn).await)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
}

#[tokio::test]
async fn hostile_twins_first_on_the_search_path_change_nothing() {
    let db = database().await;
    db.run(HOSTILE).await;
    let mut conn = db.connect().await;
    for path in ["hostile, public, pg_catalog", "hostile, pg_catalog"] {
        execute(&mut conn, &format!("SET search_path = {path}"))
            .await
            .unwrap();
        all_but_a_wait(&mut conn, &Table::new().with_text()).await;
    }
    assert_eq!(
        db.count("SELECT count(*) FROM hostile.advisory_lease")
            .await,
        0
    );
    let fresh = Table::new()
        .with_text()
        .named("public.made_under_it")
        .unwrap();
    let made = conn.batch_execute(&fresh.up()).await;
    made.unwrap();
    all_but_a_wait(&mut conn, &fresh).await;
}
