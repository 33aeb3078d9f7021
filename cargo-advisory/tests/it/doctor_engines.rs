//! `doctor` recognizes engines that speak PostgreSQL's protocol. Each is a PostgreSQL here, in
//! which one database says what that engine says of itself.

use advisory_tests::Database;

use crate::diagnosis::{doctor, findings, fix, level, message, problems};
use crate::programs::{assert_has, assert_lacks, assert_starts, cases};

/// Makes the database say another version.
fn version(text: &str) -> String {
    format!(
        "ALTER FUNCTION pg_catalog.version() RENAME TO version_of_postgresql; \
         CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql AS $$SELECT '{text}'::text$$"
    )
}

fn extension(name: &str) -> String {
    format!(
        "INSERT INTO pg_catalog.pg_extension VALUES (99999, '{name}', 10, 11, false, '1', NULL, NULL)"
    )
}

/// `pg_settings` shows only settings that a loaded module defines.
fn setting(name: &str) -> String {
    format!(
        "SET allow_system_table_mods = on; CREATE OR REPLACE VIEW pg_catalog.pg_settings AS \
         SELECT * FROM pg_catalog.pg_show_all_settings() UNION ALL \
         SELECT '{name}', s.setting, s.unit, s.category, s.short_desc, s.extra_desc, s.context, s.vartype, s.source, s.min_val, s.max_val, \
         s.enumvals, s.boot_val, s.reset_val, s.sourcefile, s.sourceline, s.pending_restart \
         FROM pg_catalog.pg_show_all_settings() AS s WHERE s.name = 'autovacuum'"
    )
}

/// The level of the finding and the beginning of its message, in a database after these statements.
async fn assert_finds(statements: &str, expected: &str, begin: &str) {
    let db = Database::create().await;
    db.run(statements).await;
    let found = findings(db.url(), &[]).await;
    let said = message(&found, "engine");
    assert_starts(&said, begin);
    assert_eq!(level(&found, "engine"), expected, "{statements}");
    let others: Vec<&str> = problems(&found)
        .into_iter()
        .filter(|name| *name != "engine")
        .collect();
    assert_eq!(others, [""; 0], "{statements}");
    assert_eq!(fix(&found, "engine"), [""; 0], "its advice is no SQL");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_is_no_other_engine() {
    assert_finds("", "fine", "PostgreSQL, by all signs: ").await;
    // Objects of a user's own with such names.
    let alike = "CREATE SCHEMA neon; CREATE SCHEMA sys; CREATE TABLE sys.iam_pg_role_mappings (); \
                 CREATE FUNCTION public.aurora_version() RETURNS int LANGUAGE sql AS 'SELECT 1'";
    assert_finds(alike, "fine", "PostgreSQL, by all signs: ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_is_recognized_by_its_version() {
    // https://github.com/cockroachdb/cockroach/issues/173479 names the release; the form is that of
    // `cockroach version`. That of YugabyteDB is in
    // https://github.com/yugabyte/yugabyte-db/issues/12323.
    let table = "\
CockroachDB CCL v26.3.0 (x86_64-pc-linux-gnu, built 2026/08/05 10:00:00, go1.25.5) | problem | CockroachDB,
PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6, 64-bit | advice | YugabyteDB,
PostgreSQL 15.2-YB-2.25.1.0-b0 on x86_64-pc-linux-gnu, 64-bit | problem | YugabyteDB before 2025.1
PostgreSQL 11.2-YB-2024.2.3.0-b0 on x86_64-pc-linux-gnu, 64-bit | problem | YugabyteDB before 2025.1";
    for [text, level, begin] in cases(table) {
        assert_finds(&version(text), level, begin).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_is_recognized_by_its_extension() {
    for (name, level, begin) in [
        ("bdr", "problem", "EDB Postgres Distributed (BDR), "),
        ("citus", "advice", "Citus, "),
        ("pgactive", "problem", "pgactive, "),
        ("shardman", "problem", "Shardman, "),
        ("spock", "problem", "pgEdge (Spock), "),
        ("spqrguard", "problem", "SPQR, "),
    ] {
        assert_finds(&extension(name), level, begin).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_is_recognized_by_a_function_or_setting() {
    let aurora = "CREATE FUNCTION pg_catalog.aurora_version() RETURNS text LANGUAGE sql AS $$SELECT '16.6.3'::text$$";
    assert_finds(aurora, "fine", "Aurora, ").await;
    assert_finds(&setting("neon.tenant_id"), "advice", "Neon, ").await;
    assert_finds(&setting("alloydb.enable_pgaudit"), "fine", "AlloyDB, ").await;
}

/// As the documentation of Aurora DSQL says.
const WITHOUT_EXTENSIONS: &str = "SET allow_system_table_mods = on; \
    ALTER TABLE pg_catalog.pg_extension RENAME TO pg_extension_of_postgresql";

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_without_extensions_is_recognized() {
    let dsql = "CREATE SCHEMA sys; CREATE TABLE sys.iam_pg_role_mappings ()";
    let cockroach = version("CockroachDB CCL v25.4.0");
    for (engine, name) in [(dsql, "Aurora DSQL, "), (&cockroach, "CockroachDB, ")] {
        let statements = format!("{WITHOUT_EXTENSIONS}; {engine}");
        assert_finds(&statements, "problem", name).await;
    }
    assert_finds(WITHOUT_EXTENSIONS, "fine", "PostgreSQL, by all signs: ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_doctor_names_the_engine() {
    let db = Database::create().await;
    let lacks = "SET allow_system_table_mods = on; ALTER VIEW pg_catalog.pg_locks RENAME TO pg_locks_of_postgresql";
    db.run(lacks).await;
    let plain = doctor(db.url(), &[]).await;
    assert_eq!(plain.code, Some(2), "{}", plain.out);
    assert_lacks(&plain.err, "; this is ");
    db.run(&version("CockroachDB CCL v25.4.0")).await;
    let said = doctor(db.url(), &[]).await;
    assert_eq!(said.code, Some(2), "{}", said.out);
    let named = "; this is CockroachDB, by its documentation: session-level locks lock nothing";
    assert_has(&said.err, "pg_locks");
    assert_has(&said.err, named);
}

/// Locks of both key spaces are tried, whatever the server calls itself.
#[tokio::test(flavor = "multi_thread")]
async fn locks_that_exclude_nobody_are_a_problem() {
    for types in ["bigint", "int, int"] {
        let db = Database::create().await;
        for function in ["pg_try_advisory_lock", "pg_advisory_unlock"] {
            db.run(&format!(
                "ALTER FUNCTION pg_catalog.{function}({types}) RENAME TO {function}_of_postgresql; \
                 CREATE FUNCTION pg_catalog.{function}({types}) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
            ))
            .await;
        }
        let found = findings(db.url(), &[]).await;
        assert_eq!(problems(&found), ["pooler"], "{types}");
        assert_has(&message(&found, "pooler"), "excludes nobody");
    }
}
