//! What claims send is plain SQL that means the same when it is qualified, and names nothing that a `search_path` could replace.

use advisory_runtime::claim::{self, Claim, Claimed};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

diesel::table! {
    parcel (depot, number) {
        depot -> Text,
        number -> Integer,
        run_at -> Timestamptz,
        attempts -> SmallInt,
        locked_until -> Nullable<Timestamp>,
        locked_by -> Nullable<Uuid>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
        status -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), order = "depot desc, number", ttl = "5m", run_at, attempts, max_attempts = 3)]
struct Parcel {
    depot: String,
    number: i32,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), ttl = "5m", run_at, attempts, max_attempts = 3, per = "depot", limit = 40)]
struct OfDepot {
    depot: String,
    number: i32,
}

/// The same ends by the statement for several claims.
#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), ttl = "5m", run_at, attempts, max_attempts = 3, completed = status.eq("done"), failed = status.eq("failed"))]
struct Told {
    depot: String,
    number: i32,
}

async fn each_end<T: claim::KeepsCompleted + claim::Fails + claim::Retries>(
    conn: &mut AsyncPgConnection,
) {
    let mut jobs = Vec::new();
    for _ in 0..7 {
        let job: Option<Claimed<T>> = claim::next("worker").first(conn).await.unwrap();
        jobs.push(job.unwrap());
    }
    claim::renew(conn, &jobs[0]).await.unwrap();
    claim::complete(conn, &jobs[0]).await.unwrap();
    claim::fail(conn, &jobs[1], "why").await.unwrap();
    claim::retry(conn, &jobs[2], "why", None).await.unwrap();
    let after = Some(std::time::Duration::from_secs(9));
    claim::retry(conn, &jobs[3], "why", after).await.unwrap();
    claim::release(conn, &jobs[4]).await.unwrap();
    claim::delete(conn, &jobs[5]).await.unwrap();
    claim::complete(conn, &jobs[5]).await.unwrap_err();
    crate::bookings::in_transaction(conn, async |conn| claim::complete(conn, &jobs[6]).await)
        .await
        .unwrap();
    let several = claim::next::<T>("worker").load(conn, 2).await;
    assert_eq!(several.unwrap().len(), 2);
    claim::counts::<T, _>(conn).await.unwrap();
}

#[derive(diesel::QueryableByName)]
pub(crate) struct Sent {
    #[diesel(sql_type = Text)]
    pub(crate) statement: String,
    #[diesel(sql_type = Text)]
    pub(crate) types: String,
}

/// The text without its qualification.
fn plain(statement: &str) -> String {
    let mut plain = String::new();
    let mut rest = statement;
    while let Some((before, operator)) = rest.split_once("OPERATOR(pg_catalog.") {
        let (operator, behind) = operator.split_once(')').expect("it is closed");
        plain.extend([before, " ", operator, " "]);
        rest = behind;
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

#[tokio::test]
async fn statements_mean_the_same_when_they_are_qualified() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE parcel (depot text, number int4, run_at timestamptz NOT NULL DEFAULT now(), attempts int2 NOT NULL DEFAULT 0, \
             locked_until timestamp, locked_by uuid, completed_at timestamptz, failed_at timestamptz, error_message text, status text, \
             PRIMARY KEY (depot, number)); \
         INSERT INTO parcel (depot, number) SELECT 'north', generate_series(1, 40)",
    )
    .await;
    let mut conn = db.connect().await;
    each_end::<Parcel>(&mut conn).await;
    each_end::<OfDepot>(&mut conn).await;
    each_end::<Told>(&mut conn).await;
    let by_key = claim::next::<Parcel>("worker")
        .key(("north", 33))
        .first(&mut conn)
        .await;
    assert_eq!(by_key.unwrap().unwrap().number, 33);
    let by_key = claim::next::<OfDepot>("worker")
        .key(("north", 34))
        .first(&mut conn)
        .await;
    assert_eq!(by_key.unwrap().unwrap().depot, "north");
    db.run("UPDATE parcel SET attempts = 3 WHERE number > 34")
        .await;
    let failed = claim::next::<Told>("worker").load(&mut conn, 9).await;
    drop(failed.unwrap());
    let sent = prepared(&mut conn, "parcel").await;
    assert!(sent.len() > 20, "{}", sent.len());
    assert_qualified(&db, &sent).await;
}

/// The statements that a connection has prepared on a table.
pub(crate) async fn prepared(conn: &mut AsyncPgConnection, table: &str) -> Vec<Sent> {
    let sent = format!(
        "SELECT statement, array_to_string(parameter_types, ', ') AS types FROM pg_prepared_statements \
         WHERE statement LIKE '%{table}%'"
    );
    diesel::sql_query(sent).load(conn).await.unwrap()
}

/// The statements mean the same without their qualification, and also if all their operators have twins on the `search_path`.
pub(crate) async fn assert_qualified(db: &Database, sent: &[Sent]) {
    let mut own = db.connect().await;
    own.batch_execute("CREATE SCHEMA hostile").await.unwrap();
    let twins = "SELECT string_agg(format('CREATE OPERATOR hostile.%s (FUNCTION = %s, LEFTARG = %s, RIGHTARG = %s)', \
         oprname, oprcode, oprleft::regtype, oprright::regtype), ';') AS statement, '' AS types FROM pg_operator \
         WHERE oprkind = 'b' AND oprcode <> 0 AND oprname IN ('=', '<=', '>=', '<', '>', '<>', '+', '-', '*', '/', '||', '&', '<<', '>>')";
    let twins: Sent = diesel::sql_query(twins).get_result(&mut own).await.unwrap();
    own.batch_execute(&twins.statement).await.unwrap();
    for sent in sent {
        let qualified = define(&mut own, "public", sent, &sent.statement).await;
        let plain = define(&mut own, "public", sent, &plain(&sent.statement)).await;
        assert_eq!(plain, qualified, "{}", sent.statement);
        let hostile = define(
            &mut own,
            "hostile, pg_catalog, public",
            sent,
            &sent.statement,
        )
        .await;
        assert!(!hostile.contains("hostile"), "{hostile}");
    }
}
