//! The types of a column whose values have a limit.

use advisory_runtime::claim::{self, Claim};
use advisory_tests::statements::run;
use advisory_tests::{Database, claims, left_out};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;

diesel::table! {
    parcel (id) {
        id -> BigInt,
        tenant -> Nullable<Text>,
        run_at -> Timestamptz,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(run_at, per = "tenant", limit = 1)]
struct Parcel {
    id: i64,
}

async fn claimed(conn: &mut AsyncPgConnection) -> Vec<i64> {
    let mut ids = Vec::new();
    while let Some(job) = claims::first::<Parcel>(conn).await {
        ids.push(job.id);
    }
    ids
}

/// A table whose column has this type, with rows of these values.
async fn parcels(sql_type: &str, values: &[&str]) -> Database {
    let db = Database::create().await;
    db.run(
        "CREATE DOMAIN tenant_name AS text NOT NULL CHECK (VALUE <> ''); \
         CREATE DOMAIN tenant_number AS int4; CREATE TYPE tenant_kind AS ENUM ('a', 'b')",
    )
    .await;
    if sql_type == "citext" {
        db.run("CREATE EXTENSION citext").await;
    }
    db.run(&format!(
        "CREATE TABLE parcel (id int8 PRIMARY KEY, tenant {sql_type}, run_at timestamptz NOT NULL DEFAULT now(), \
             locked_until timestamptz, locked_by text)"
    ))
    .await;
    db.run(&claim::indexes::<Parcel>().concat()).await;
    for (nth, value) in values.iter().enumerate() {
        db.run(&format!(
            "INSERT INTO parcel (id, tenant) VALUES ({nth}, {value})"
        ))
        .await;
    }
    db
}

#[tokio::test]
async fn any_type_with_equality_can_have_limits_and_null_is_a_value() {
    let texts = "text,varchar(9),tenant_kind,name,bytea".split(',');
    let texts = texts.map(|sql_type| (sql_type, ["'a'", "'a'", "'b'"]));
    let numbers = "int2,int8,tenant_number,float8".split(',');
    let numbers = numbers.map(|sql_type| (sql_type, ["1", "1", "-2"]));
    // Values are equal as their type says, and rows without a value have one limit together.
    let others = [
        ("text", ["NULL", "NULL", "'a'"]),
        ("char(9)", ["'a'", "'a  '", "'b'"]),
        ("numeric", ["1", "1.00", "2"]),
        ("tenant_name", ["'a'", "'a'", "'A'"]),
        (
            "timestamptz",
            [
                "'2020-01-01 00:00Z'",
                "'2020-01-01 01:00+1'",
                "'2020-01-02Z'",
            ],
        ),
    ];
    for (sql_type, values) in texts.chain(numbers).chain(others) {
        let db = parcels(sql_type, &values).await;
        let mut conn = db.connect().await;
        assert_eq!(claimed(&mut conn).await, [0, 2], "{sql_type} {values:?}");
        let by_key = claims::by_key::<Parcel>(&mut conn, 1).await;
        assert!(by_key.is_none(), "{sql_type} {values:?}");
    }
}

#[tokio::test]
async fn citext_ignores_the_case() {
    let db = Database::create().await;
    let available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'";
    if db.count(available).await == 0 {
        left_out("citext", "the server has no such extension");
        return;
    }
    let db = parcels("citext", &["'a'", "'A'", "'b'"]).await;
    let mut conn = db.connect().await;
    assert_eq!(claimed(&mut conn).await, [0, 2]);
}

/// Otherwise a claim would read all rows each time.
#[tokio::test]
async fn the_indexes_are_used_for_each_type() {
    for sql_type in ["text", "char(40)", "varchar(40)", "tenant_name", "uuid"] {
        let db = parcels(sql_type, &[]).await;
        db.run(&format!(
            "INSERT INTO parcel (id, tenant) SELECT i, CAST(CAST(md5(GREATEST(i, 500)::text) AS uuid)::text AS {sql_type}) \
                 FROM generate_series(1, 20000) AS i; ANALYZE parcel"
        ))
        .await;
        db.run("SELECT pg_stat_force_next_flush()").await;
        let scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'parcel'";
        let before = db.count(scans).await;
        let mut conn = db.connect().await;
        for _ in 0..3 {
            let job = claims::first::<Parcel>(&mut conn).await;
            assert!(job.is_some(), "{sql_type}");
        }
        run(&mut conn, "SELECT pg_stat_force_next_flush()").await;
        assert_eq!(db.count(scans).await, before, "{sql_type}");
    }
}
