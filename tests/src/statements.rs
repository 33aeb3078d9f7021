//! The statements that a connection has prepared, and an assertion that their meaning does not
//! depend on the `search_path`.

use crate::Database;
use diesel::sql_types::Text;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

/// A statement that fails with this SQLSTATE, message and perhaps hint, separated by `|`.
pub fn raise(failure: &str) -> String {
    let mut parts = failure.split('|');
    let (state, message, hint) = (parts.next().unwrap(), parts.next().unwrap(), parts.next());
    let hint = hint.map_or(String::new(), |hint| format!(", HINT = '{hint}'"));
    format!(
        "DO LANGUAGE plpgsql $$BEGIN RAISE EXCEPTION USING ERRCODE = '{state}', \
         MESSAGE = '{message}'{hint}; END$$"
    )
}

/// A prepared statement.
#[derive(diesel::QueryableByName)]
pub struct Sent {
    /// Its text.
    #[diesel(sql_type = Text)]
    pub statement: String,
    /// The types of its parameters.
    #[diesel(sql_type = Text)]
    pub types: String,
}

/// The statements that a connection has prepared on a table.
pub async fn prepared(conn: &mut AsyncPgConnection, table: &str) -> Vec<Sent> {
    let sent = format!(
        "SELECT statement, array_to_string(parameter_types, ', ') AS types FROM pg_prepared_statements \
         WHERE statement LIKE '%{table}%'"
    );
    diesel::sql_query(sent).load(conn).await.unwrap()
}

/// The names of the prepared statements that contain this text, in the order of their preparation.
pub async fn names(conn: &mut AsyncPgConnection, text: &str) -> Vec<String> {
    let names = format!(
        "unnest((SELECT array_agg(name ORDER BY prepare_time) FROM pg_prepared_statements \
         WHERE strpos(statement, '{text}') > 0 AND strpos(statement, 'pg_trigger') = 0))"
    );
    let names = diesel::select(diesel::dsl::sql::<Text>(&names));
    names.load(conn).await.unwrap()
}

/// Runs statements without parameters.
pub async fn run(conn: &mut AsyncPgConnection, statements: &str) {
    conn.batch_execute(statements).await.unwrap();
}

/// The server's plan of a statement; `how` is `EXPLAIN` with its options.
pub async fn explain(conn: &mut AsyncPgConnection, how: &str, statement: &str) -> String {
    #[derive(diesel::QueryableByName)]
    struct Line {
        #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
        text: String,
    }
    let explain = diesel::sql_query(format!("{how} {statement}"));
    let lines: Vec<Line> = explain.load(conn).await.unwrap();
    let lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
    lines.join("\n")
}

/// The text without its qualification.
fn plain(statement: &str) -> String {
    let mut plain = String::new();
    let mut rest = statement;
    while let Some((before, operator)) = rest.split_once("OPERATOR(pg_catalog.") {
        let (operator, after) = operator.split_once(')').expect("it is closed");
        plain.extend([before, " ", operator, " "]);
        rest = after;
    }
    (plain + rest).replace("pg_catalog.", "")
}

async fn define(conn: &mut AsyncPgConnection, path: &str, sent: &Sent, statement: &str) -> String {
    conn.batch_execute(&format!(
        "DROP FUNCTION IF EXISTS public.f; SET search_path = {path}; CREATE FUNCTION public.f({}) RETURNS void LANGUAGE sql BEGIN ATOMIC {statement}; END; \
         SET search_path = pg_catalog",
        sent.types
    ))
    .await
    .unwrap_or_else(|error| panic!("{error}: {statement}"));
    let define = "(SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'f')";
    let define = diesel::select(diesel::dsl::sql::<Text>(define));
    define.get_result(conn).await.unwrap()
}

/// Asserts that the statements keep their meaning without their qualification, and with twins of
/// their operators, functions, types and relations on the `search_path`.
pub async fn assert_qualified(db: &Database, sent: &[Sent]) {
    let mut own = db.connect().await;
    let types = "CREATE SCHEMA hostile; CREATE DOMAIN hostile.int8 AS text; \
         CREATE DOMAIN hostile.int4 AS text; CREATE DOMAIN hostile.float8 AS text";
    run(&mut own, types).await;
    let relations = "CREATE VIEW hostile.pg_trigger AS TABLE pg_catalog.pg_trigger; \
         CREATE VIEW hostile.pg_class AS TABLE pg_catalog.pg_class; \
         CREATE VIEW hostile.pg_index AS TABLE pg_catalog.pg_index";
    run(&mut own, relations).await;
    let twins = "SELECT string_agg(format('CREATE OPERATOR hostile.%s (FUNCTION = %s, LEFTARG = %s, RIGHTARG = %s)', \
         oprname, oprcode, oprleft::regtype, oprright::regtype), ';') AS statement, '' AS types FROM pg_operator \
         WHERE oprkind = 'b' AND oprcode <> 0 AND oprname IN ('=', '<=', '>=', '<', '>', '<>', '+', '-', '*', '/', '||', '&', '<<', '>>')";
    let twins: Sent = diesel::sql_query(twins).get_result(&mut own).await.unwrap();
    run(&mut own, &twins.statement).await;
    let twins = "SELECT string_agg(format('CREATE FUNCTION hostile.%I(%s) RETURNS %s LANGUAGE internal AS %L', \
         proname, pg_get_function_identity_arguments(oid), pg_get_function_result(oid), prosrc), ';') AS statement, \
         '' AS types FROM pg_proc WHERE prokind = 'f' AND NOT proretset AND provariadic = 0 AND pronamespace = 'pg_catalog'::regnamespace \
         AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'internal') \
         AND proname IN ('clock_timestamp', 'now', 'gen_random_uuid', 'set_config', 'current_setting', 'nextval', 'setval', 'date_part', 'ceil', \
         'to_timestamp', 'left', 'lower', 'strpos', 'encode', 'octet_length', 'to_regclass', 'pg_try_advisory_xact_lock', \
         'pg_sequence_last_value', 'pg_current_xact_id', 'pg_xact_status', 'pg_is_in_recovery', 'has_table_privilege')";
    let twins: Sent = diesel::sql_query(twins).get_result(&mut own).await.unwrap();
    run(&mut own, &twins.statement).await;
    for sent in sent {
        let qualified = define(&mut own, "public", sent, &sent.statement).await;
        let plain = define(&mut own, "public", sent, &plain(&sent.statement)).await;
        assert_eq!(plain, qualified, "{}", sent.statement);
        let path = "hostile, pg_catalog, public";
        let hostile = define(&mut own, path, sent, &sent.statement).await;
        assert!(!hostile.contains("hostile"), "{hostile}");
    }
}
