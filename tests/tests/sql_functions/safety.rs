//! The functions are safe: against NULL, roles without a grant, and objects of the same name on the
//! `search_path`.

use crate::{migrate, migrated, says, value};
use advisory_runtime::sql_functions::ADVISORY_KEYS_UP;
use advisory_tests::{Database, LockedKey};
use diesel::dsl::sql;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

/// Every function of the migration, as a call with each argument `NULL` in turn, and that
/// argument's name.
const NULLS: [(&str, &str); 10] = [
    ("advisory_key(NULL)", "rendered"),
    ("advisory_escape(NULL)", "value"),
    ("email_to_lock_id(NULL)", "p_email"),
    ("generate_lock_id(NULL, 'x')", "p_namespace"),
    ("generate_lock_id('x', NULL)", "p_key"),
    ("acquire_cleanup_lock(NULL)", "p_email"),
    ("release_cleanup_lock(NULL)", "p_email"),
    ("advisory_holds(NULL)", "key"),
    ("advisory_require(NULL, 'x')", "key"),
    ("advisory_require(1, NULL)", "lock"),
];

/// Every function of the migration. `advisory_require` finds the lock that the previous call has
/// acquired.
const CALLS: [&str; 8] = [
    "advisory_key('a')",
    "advisory_escape('a')",
    "email_to_lock_id('a')",
    "generate_lock_id('cleanup', 'a')",
    "acquire_cleanup_lock('a')",
    "advisory_require(-3848465438864589366, 'a')",
    "release_cleanup_lock('a')",
    "advisory_holds(1)",
];

/// `failure(statement)` returns how the statement fails: its SQLSTATE and message.
const FAILURE: &str = "
    CREATE FUNCTION failure(statement text) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE statement;
        RETURN 'nothing failed';
    EXCEPTION WHEN OTHERS THEN
        RETURN SQLSTATE || ' ' || SQLERRM;
    END $$";

/// Objects with the names that the functions use, which answer wrongly or fail.
const HOSTILE: &str = "
    CREATE FUNCTION public.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
    CREATE FUNCTION public.convert_to(text, name) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
    CREATE FUNCTION public.encode(bytea, text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.substring(bytea, int, int) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
    CREATE FUNCTION public.replace(text, text, text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.lower(text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.btrim(text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE FUNCTION public.pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE FUNCTION public.worst(text, text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE OPERATOR public.|| (FUNCTION = public.worst, LEFTARG = text, RIGHTARG = text);
    CREATE FUNCTION public.pg_lock_status() RETURNS SETOF pg_locks LANGUAGE sql AS 'SELECT * FROM pg_locks LIMIT 0';
    CREATE FUNCTION public.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 0';
    CREATE FUNCTION public.never(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.never, LEFTARG = oid, RIGHTARG = oid);
    CREATE DOMAIN public.bit AS pg_catalog.text CHECK (false);
    CREATE DOMAIN public.int8 AS pg_catalog.text CHECK (false);
    CREATE DOMAIN public.bool AS pg_catalog.text CHECK (false);
    CREATE DOMAIN public.text AS pg_catalog.text CHECK (false);
";

async fn failure(conn: &mut AsyncPgConnection, statement: &str) -> String {
    value::<String, Text>(conn, &format!("failure($$ {statement} $$)")).await
}

#[tokio::test]
async fn null_raises_and_names_the_argument() {
    let (db, mut conn) = migrated().await;
    db.run(FAILURE).await;
    for (call, argument) in NULLS {
        let function = call.split('(').next().unwrap();
        assert_eq!(
            failure(&mut conn, &format!("SELECT {call}")).await,
            format!("22004 {function}: argument \"{argument}\" is NULL"),
        );
    }
    assert_eq!(db.locks().await, []);
}

#[tokio::test]
async fn calling_them_needs_a_grant_on_one_only() {
    let (db, mut conn) = migrated().await;
    db.run(FAILURE).await;
    // A role belongs to the whole server, so it is created in a transaction that is rolled back.
    let rolled_back = conn
        .transaction(async |conn| {
            let stranger = value::<String, Text>(conn, "'advisory_stranger_' || pg_backend_pid()").await;
            conn.batch_execute(&format!("CREATE ROLE {stranger}; SET LOCAL ROLE {stranger}"))
                .await?;
            for call in CALLS {
                let function = call.split('(').next().unwrap();
                let refused = format!("42501 permission denied for function {function}");
                assert_eq!(failure(conn, &format!("SELECT {call}")).await, refused);
            }
            for call in CALLS {
                let function = call.split('(').next().unwrap();
                conn.batch_execute(&format!(
                    "RESET ROLE; GRANT EXECUTE ON FUNCTION {function} TO {stranger}; SET LOCAL ROLE {stranger}"
                ))
                .await?;
                assert_eq!(failure(conn, &format!("SELECT {call}")).await, "nothing failed");
                conn.batch_execute(&format!(
                    "RESET ROLE; REVOKE EXECUTE ON FUNCTION {function} FROM {stranger}; SET LOCAL ROLE {stranger}"
                ))
                .await?;
            }
            Err::<(), _>(DieselError::RollbackTransaction)
        })
        .await;
    assert_eq!(rolled_back, Err(DieselError::RollbackTransaction));
}

#[tokio::test]
async fn the_functions_keep_their_promises_to_the_planner() {
    let (_db, mut conn) = migrated().await;
    let unlike = |what: &str| {
        format!(
            "coalesce(string_agg(proname, ', '), '') FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND ({what}) IS NOT TRUE"
        )
    };
    for claim in [
        "proconfig = ARRAY['search_path=pg_catalog, pg_temp']",
        "NOT prosecdef",
        "(provolatile, proparallel) = CASE WHEN proname ~ '_lock$|_holds$|_require$' \
         THEN (SELECT (provolatile, proparallel) FROM pg_proc AS own WHERE own.oid = 'pg_try_advisory_lock(bigint)'::regprocedure) \
         ELSE ('i'::\"char\", 's'::\"char\") END",
    ] {
        assert_eq!(
            value::<String, Text>(&mut conn, &unlike(claim)).await,
            "",
            "{claim}"
        );
    }
}

#[tokio::test]
async fn key_functions_run_in_a_parallel_worker() {
    let (_db, mut conn) = migrated().await;
    // Release 16 renamed the setting.
    let forced = "count(set_config(name, 'on', false)) = 1 FROM pg_settings \
         WHERE name IN ('debug_parallel_query', 'force_parallel_mode')";
    assert!(says(&mut conn, forced).await);
    let query = "SELECT sum(advisory_key(relname::text) % 2 + email_to_lock_id(advisory_escape(relname::text)) % 2 \
         + generate_lock_id('cleanup', relname::text) % 2)::bigint FROM pg_class";
    let plan: Vec<String> = sql::<Text>(&format!("EXPLAIN {query}"))
        .load(&mut conn)
        .await
        .unwrap();
    assert!(plan.iter().any(|line| line.contains("Gather")), "{plan:#?}");
    sql::<BigInt>(query)
        .get_result::<i64>(&mut conn)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_hostile_search_path_changes_nothing() {
    let db = Database::create().await;
    db.run(HOSTILE).await;
    let mut conn = db.connect().await;
    conn.batch_execute("SET search_path = public, pg_catalog")
        .await
        .unwrap();
    migrate(&mut conn, ADVISORY_KEYS_UP).await.unwrap();
    let unpin = CALLS.map(|call| {
        let function = call.split('(').next().unwrap();
        format!("ALTER FUNCTION {function} RESET search_path;")
    });
    // First the fixed path protects them, then only the qualified names.
    for session in ["", &unpin.concat()] {
        conn.batch_execute(session).await.unwrap();
        for same in [
            "advisory_key('booking:1') = 3878245474506011689",
            "advisory_escape('a:b%') = 'a%3Ab%25'",
            "email_to_lock_id(' User@X.com ') = -3508133180453765740",
            "generate_lock_id('cleanup', ' U@x ') = 3268022024975605132",
            "acquire_cleanup_lock(' User@X.com ')",
            "advisory_holds(-3508133180453765740)",
            "NOT advisory_holds(3268022024975605132)",
            "advisory_require(-3508133180453765740, 'email') IS NOT NULL",
        ] {
            assert!(says(&mut conn, same).await, "{same} {session}");
        }
        let held: Vec<_> = db.locks().await.into_iter().map(|lock| lock.key).collect();
        assert_eq!(
            held,
            [LockedKey::Bigint(-3_508_133_180_453_765_740)],
            "{session}"
        );
        assert!(
            says(&mut conn, "release_cleanup_lock('user@x.com')").await,
            "{session}"
        );
        assert_eq!(db.locks().await, [], "{session}");
    }
}
