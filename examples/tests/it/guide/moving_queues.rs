use advisory_runtime::claim::{self, Claim};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel::result::DatabaseErrorKind;
use diesel::result::Error::DatabaseError;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection as _};

const PAGE: &str = include_str!("../../../../advisory-runtime/docs/moving-queues.md");

diesel::table! {
    job (id) {
        id -> BigInt, created_at -> Timestamptz, done_at -> Nullable<Timestamptz>,
        locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text>,
    }
}

crate::guide::page!("moving-queues", 1);

diesel::table! {
    task (id) {
        id -> BigInt, queued_at -> Timestamptz, tries -> Integer, error -> Nullable<Text>,
        locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>, failed_at -> Nullable<Timestamptz>,
    }
}

crate::guide::page!("moving-queues", 2);

diesel::table! {
    mail (id) {
        id -> BigInt, queue_name -> Text, priority -> SmallInt, run_at -> Timestamptz, attempts -> Integer,
        locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text>,
        failed_at -> Nullable<Timestamptz>, error_message -> Nullable<Text>,
    }
}

crate::guide::page!("moving-queues", 3);

diesel::table! {
    export (id) {
        id -> Text, concurrency_key -> Text, priority -> Integer, run_at -> Timestamptz, attempts -> Integer,
        locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text>, completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>, error_message -> Nullable<Text>,
    }
}

crate::guide::page!("moving-queues", 4);

fn sql(words: &str) -> &'static str {
    crate::guide::sql(PAGE, words)
}

/// How many rows the page's query finds.
async fn rows(conn: &mut AsyncPgConnection, words: &str) -> usize {
    let query = sql(words).trim_end_matches(';');
    diesel::sql_query(query).execute(conn).await.unwrap()
}

/// A worker that holds a row lock while it works, and a claim.
#[tokio::test]
async fn an_old_worker_takes_a_claimed_row_unless_it_looks() {
    let db = Database::create().await;
    db.run("CREATE TABLE job (id bigserial PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now(), done_at timestamptz)")
        .await;
    db.run(sql("ALTER TABLE job")).await;
    db.run(&claim::indexes::<Job>().join(";")).await;
    db.run("INSERT INTO job (id, done_at) VALUES (1, NULL), (2, now())")
        .await;
    let (mut conn, mut old) = (db.connect().await, db.connect().await);
    let old_query = "SELECT FROM job WHERE done_at IS NULL";
    let skips = "ORDER BY created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED";
    // A new worker passes over what an old one has, which the page's query shows.
    let holders = "SELECT a.pid";
    assert_eq!(rows(&mut conn, holders).await, 0);
    let works = format!("BEGIN; {old_query} {skips}");
    old.batch_execute(&works).await.unwrap();
    assert_eq!(rows(&mut conn, holders).await, 1);
    let none = claim::next::<Job>("new").first(&mut conn).await.unwrap();
    assert!(none.is_none());
    old.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut conn, holders).await, 0);
    let claimed = claim::next::<Job>("new").first(&mut conn).await.unwrap();
    let claimed = claimed.expect("the row is free");
    // The other way round only if the old query looks at the claim.
    let taken = async |condition: &str| {
        let query = format!("SELECT count(*) FROM ({old_query} {condition} {skips}) AS taken");
        db.count(&query).await
    };
    assert_eq!(taken("").await, 1);
    assert_eq!(taken("AND locked_until IS NULL").await, 0);
    claim::complete(&mut conn, &claimed).await.unwrap();
    let open = "SELECT count(*) FROM job WHERE done_at IS NULL";
    assert_eq!(db.count(open).await, 0, "both see what is done");
}

/// A long job does not keep producers waiting behind the migration.
#[tokio::test]
async fn a_new_column_gives_up_behind_a_long_job() {
    let db = Database::create().await;
    db.run("CREATE TABLE job (id bigserial PRIMARY KEY); INSERT INTO job VALUES (1)")
        .await;
    let (mut conn, mut old) = (db.connect().await, db.connect().await);
    let works = "BEGIN; SELECT FROM job FOR UPDATE";
    old.batch_execute(works).await.unwrap();
    let limit = "SET statement_timeout = '20s'";
    conn.batch_execute(limit).await.unwrap();
    let migration = sql("ALTER TABLE job");
    let refused = refusal(&mut conn, migration).await;
    assert!(refused.contains("lock timeout"), "{refused}");
    old.batch_execute("COMMIT").await.unwrap();
    conn.batch_execute(migration).await.unwrap();
}

/// Runs SQL that must fail, and returns the message.
async fn refusal(conn: &mut AsyncPgConnection, sql: &str) -> String {
    let refused = conn.batch_execute(sql).await;
    let Err(DatabaseError(DatabaseErrorKind::Unknown, why)) = refused else {
        panic!("{refused:?}")
    };
    conn.batch_execute("ROLLBACK").await.unwrap();
    why.message().to_owned()
}

/// A queue with a `status`, whose old producers write it, with the columns of the claim.
async fn tasks() -> Database {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE task (id bigserial PRIMARY KEY, status text, \
             queued_at timestamptz NOT NULL DEFAULT now(), changed_at timestamptz, tries int NOT NULL DEFAULT 0, error text); \
         CREATE INDEX task_status ON task (status); \
         INSERT INTO task (status, changed_at, tries, error) VALUES ('done', '2026-01-01Z', 1, NULL), \
             ('failed', NULL, 5, 'no such account'), ('running', now(), 1, NULL)",
    )
    .await;
    db.run(sql("ALTER TABLE task\n    ADD COLUMN locked_until"))
        .await;
    db.run(&claim::indexes::<Task>().join(";")).await;
    // A new producer does not write the status.
    db.run("INSERT INTO task (queued_at) VALUES (now() + interval '1 hour')")
        .await;
    db
}

const GENERATED: &str = "UPDATE task SET completed_at";

/// What the page says for a large table: its SQL with a trigger instead of the `ALTER TABLE`.
fn with_trigger() -> String {
    let (checks, _) = sql(GENERATED).split_once("ALTER TABLE").unwrap();
    format!("{checks}{}COMMIT;", sql("CREATE OR REPLACE TRIGGER"))
}

#[tokio::test]
async fn a_status_becomes_that_of_the_claim() {
    let db = tasks().await;
    has_the_status_of_the_claim(&db, sql(GENERATED)).await;
    let old = "INSERT INTO task (status) VALUES ('pending')";
    let refused = refusal(&mut db.connect().await, old).await;
    assert!(refused.contains("\"status\""), "{refused}");
}

#[tokio::test]
async fn a_trigger_keeps_the_status_of_a_large_table() {
    let db = tasks().await;
    has_the_status_of_the_claim(&db, &with_trigger()).await;
    let index = "SELECT count(*) FROM pg_indexes WHERE indexname = 'task_status'";
    assert_eq!(db.count(index).await, 1);
}

async fn has_the_status_of_the_claim(db: &Database, moves: &str) {
    let mut conn = db.connect().await;
    let running = "SELECT id, changed_at FROM task";
    assert_eq!(rows(&mut conn, running).await, 1);
    db.run(moves).await;
    assert_eq!(rows(&mut conn, running).await, 0);
    let done = "SELECT count(*) FROM task WHERE completed_at = '2026-01-01Z' AND status = 'done'";
    assert_eq!(db.count(done).await, 1);
    let status = async |id: i64, wanted: &str| {
        let query = format!("SELECT count(*) FROM task WHERE id = {id} AND status = '{wanted}'");
        assert_eq!(db.count(&query).await, 1, "{id} is {wanted}");
    };
    let taken = claim::next::<Task>("new").first(&mut conn).await.unwrap();
    let taken = taken.expect("the row of a stopped worker");
    assert_eq!(taken.id, 3);
    let none = claim::next::<Task>("new").first(&mut conn).await.unwrap();
    assert!(none.is_none());
    db.run(moves).await;
    assert_eq!(db.count(done).await, 1, "again");
    for (id, wanted) in [(1, "done"), (2, "failed"), (3, "running"), (4, "pending")] {
        status(id, wanted).await;
    }
    // A worker that was forgotten takes nothing.
    let old = "UPDATE task SET status = 'running' WHERE id = (SELECT id FROM task WHERE status = 'pending' \
               ORDER BY queued_at LIMIT 1 FOR UPDATE SKIP LOCKED)";
    let refused = refusal(&mut conn, old).await;
    assert!(refused.contains("\"status\""), "{refused}");
    claim::release(&mut conn, &taken).await.unwrap();
    status(3, "pending").await;
    let again = claim::next::<Task>("new").first(&mut conn).await.unwrap();
    let again = again.expect("a released row");
    status(3, "running").await;
    claim::complete(&mut conn, &again).await.unwrap();
    status(3, "done").await;
    // A new producer.
    db.run("INSERT INTO task (queued_at) VALUES (now())").await;
    let new = claim::next::<Task>("new").first(&mut conn).await.unwrap();
    let new = new.expect("a new row");
    status(new.id, "running").await;
    claim::fail(&mut conn, &new, "refused").await.unwrap();
    status(new.id, "failed").await;
}

#[tokio::test]
async fn a_status_of_another_kind_is_not_moved() {
    let db = tasks().await;
    let mut conn = db.connect().await;
    for moves in [sql(GENERATED), &with_trigger()] {
        for other in ["'cancelled'", "NULL"] {
            db.run(&format!("UPDATE task SET status = {other} WHERE id = 4"))
                .await;
            let refused = refusal(&mut conn, moves).await;
            assert_eq!(refused, "task has rows with another status");
        }
    }
    db.run("DELETE FROM task WHERE id = 4").await;
    db.run(sql(GENERATED)).await;
}

/// The columns of `graphile_worker` 0.17 and 0.18, without its functions, checks and indexes.
const GRAPHILE: &str = "
    CREATE SCHEMA graphile_worker;
    CREATE TABLE graphile_worker._private_tasks (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, identifier text NOT NULL UNIQUE);
    CREATE TABLE graphile_worker._private_job_queues (
        id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, queue_name text NOT NULL UNIQUE, locked_at timestamptz, locked_by text,
        is_available boolean GENERATED ALWAYS AS (locked_at IS NULL) STORED NOT NULL);
    CREATE TABLE graphile_worker._private_jobs (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, job_queue_id int, task_id int NOT NULL, payload json NOT NULL DEFAULT '{}',
        priority smallint NOT NULL DEFAULT 0, run_at timestamptz NOT NULL DEFAULT now(), attempts smallint NOT NULL DEFAULT 0,
        max_attempts smallint NOT NULL DEFAULT 25, last_error text, created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(), key text UNIQUE, locked_at timestamptz, locked_by text,
        revision int NOT NULL DEFAULT 0, flags jsonb,
        is_available boolean GENERATED ALWAYS AS (locked_at IS NULL AND attempts < max_attempts) STORED NOT NULL);
    ALTER TABLE graphile_worker._private_jobs ENABLE ROW LEVEL SECURITY;
    INSERT INTO graphile_worker._private_tasks (identifier) VALUES ('send_mail'), ('resize');
    INSERT INTO graphile_worker._private_job_queues (queue_name) VALUES ('house 7');";

#[tokio::test]
async fn jobs_of_graphile_worker_go_on_as_claims() {
    let db = Database::create().await;
    db.run(GRAPHILE).await;
    // In the order in which they are due: two of one queue, one that a dead worker has, one of no
    // queue, a late one, one that has failed, and one of another task.
    db.run(
        "INSERT INTO graphile_worker._private_jobs (task_id, job_queue_id, payload, priority, attempts, last_error, locked_at, run_at) VALUES \
             (1, 1, '{\"to\": \"a\"}', 1, 0, NULL, NULL, now()), (1, 1, '{\"to\": \"b\"}', 2, 0, NULL, NULL, now()), \
             (1, NULL, '{\"to\": \"c\"}', 3, 2, 'refused', now(), now()), (1, NULL, '{\"to\": \"f\"}', 4, 0, NULL, NULL, now()), (1, NULL, '{\"to\": \"d\"}', 0, 1, NULL, NULL, now() + interval '1 hour'), \
             (1, NULL, '{\"to\": \"e\"}', 0, 25, 'no such address', NULL, now()), (2, NULL, '{}', 0, 0, NULL, NULL, now())",
    )
    .await;
    // One with a single attempt left, and one with more than the table allows. The first row moves
    // to the end of the table.
    db.run(
        "INSERT INTO graphile_worker._private_jobs (task_id, payload, priority, attempts, max_attempts, run_at) VALUES \
             (1, '{\"to\": \"g\"}', 5, 2, 3, now() + interval '1 hour'), (1, '{\"to\": \"h\"}', 5, 1, 30, now() + interval '1 hour'); \
         UPDATE graphile_worker._private_jobs SET revision = 1 WHERE id = 1",
    )
    .await;
    db.run(sql("CREATE TABLE mail")).await;
    db.run(&claim::indexes::<Mail>().join(";")).await;
    let mut conn = db.connect().await;
    assert_eq!(rows(&mut conn, "SELECT locked_by, count(*)").await, 1);
    for _ in 0..2 {
        db.run(sql("INSERT INTO mail")).await;
    }
    let order = "SELECT count(*) FROM (SELECT string_agg(payload ->> 'to', '' ORDER BY id) FROM mail) AS mail (jobs) \
                 WHERE jobs = 'abcfdegh'";
    assert_eq!(db.count(order).await, 1);
    let attempts = async |to: char| {
        let query = format!("SELECT attempts::bigint FROM mail WHERE payload ->> 'to' = '{to}'");
        db.count(&query).await
    };
    let of_jobs = [
        attempts('g').await,
        attempts('h').await,
        attempts('e').await,
    ];
    assert_eq!(of_jobs, [24, 0, 25]);
    let left = "SELECT count(*) FROM graphile_worker._private_jobs";
    assert_eq!(db.count(left).await, 1, "the job of the other task");
    let to = async |id: i64| {
        let query = format!("SELECT ascii(payload ->> 'to') FROM mail WHERE id = {id}");
        char::from(u8::try_from(db.count(&query).await).unwrap())
    };
    let first = claim::next::<Mail>("new").load(&mut conn, 9).await.unwrap();
    let mut sent = String::new();
    for mail in &first {
        sent.push(to(mail.id).await);
    }
    assert_eq!(sent, "acf", "one of the queue, and all without one");
    let third = "SELECT count(*) FROM mail WHERE attempts = 3 AND error_message = 'refused'";
    assert_eq!(db.count(third).await, 1);
    for mail in &first {
        claim::complete(&mut conn, mail).await.unwrap();
    }
    let next = claim::next::<Mail>("new").first(&mut conn).await.unwrap();
    assert_eq!(to(next.unwrap().id).await, 'b');
    let counts = claim::counts::<Mail, _>(&mut conn).await.unwrap();
    assert_eq!((counts.failed, counts.retrying, counts.running), (1, 2, 1));
}

/// The columns of `good_job` 4.19, without its indexes. Rails makes times without a zone, in UTC.
const GOOD_JOB: &str = "
    CREATE TABLE good_jobs (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(), queue_name text, priority int, serialized_params jsonb, scheduled_at timestamp(6),
        performed_at timestamp(6), finished_at timestamp(6), error text, created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL,
        active_job_id uuid, concurrency_key text, cron_key text, retried_good_job_id uuid, cron_at timestamp(6), batch_id uuid,
        batch_callback_id uuid, is_discrete boolean, executions_count int, job_class text, error_event smallint, labels text[],
        locked_by_id uuid, locked_at timestamp(6), lock_type smallint);
    CREATE TABLE good_job_processes (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), created_at timestamp(6) NOT NULL,
        updated_at timestamp(6) NOT NULL, state jsonb, lock_type smallint);";

#[tokio::test]
async fn jobs_of_good_job_go_on_as_claims() {
    let db = Database::create().await;
    db.run(GOOD_JOB).await;
    // By the number at the end of the id: two with one key, one for later, one that is done, one of
    // another class, one that a process performs, and one with more attempts than the table allows.
    let seconds = |seconds: i32| format!("timezone('UTC', now()) + interval '{seconds} s'");
    let job = |id: i32, columns: &str, values: &str| {
        format!(
            "INSERT INTO good_jobs (id, job_class, serialized_params, created_at, updated_at, {columns}) \
             SELECT ('00000000-0000-4000-8000-00000000000' || {id})::uuid, 'ExportJob', \
             '{{\"arguments\": [{id}]}}', t, t, {values} FROM timezone('UTC', now()) AS t; "
        )
    };
    let (past, later) = (seconds(-60), seconds(3600));
    let jobs = [
        job(
            1,
            "scheduled_at, priority, concurrency_key",
            &format!("{past}, 1, 'k'"),
        ),
        job(
            2,
            "scheduled_at, priority, concurrency_key",
            &format!("{past}, 2, 'k'"),
        ),
        job(
            3,
            "scheduled_at, executions_count, error",
            &format!("{later}, 2, 'timeout'"),
        ),
        job(4, "finished_at", "t"),
        job(5, "priority", "3"),
        job(6, "performed_at", "t"),
        job(7, "queue_name", "'other'"),
        job(8, "scheduled_at, executions_count", &format!("{later}, 7")),
    ];
    db.run(&jobs.concat()).await;
    db.run("UPDATE good_jobs SET job_class = 'OtherJob' WHERE queue_name = 'other'")
        .await;
    db.run(sql("CREATE TABLE export")).await;
    db.run(&claim::indexes::<Export>().join(";")).await;
    let mut process = db.connect().await;
    process
        .batch_execute(
            "SELECT pg_advisory_lock(('x' || substr(md5('good_jobs-00000000-0000-4000-8000-000000000006'), 1, 16))::bit(64)::bigint); \
             INSERT INTO good_job_processes (created_at, updated_at, state) SELECT t, t, '{\"hostname\": \"vm\"}' FROM timezone('UTC', now()) AS t",
        )
        .await
        .unwrap();
    let mut conn = db.connect().await;
    assert_eq!(rows(&mut conn, "SELECT id, state").await, 1);
    let moves = sql("INSERT INTO export");
    conn.batch_execute("SET TimeZone = 'Asia/Tokyo'")
        .await
        .unwrap();
    conn.batch_execute(moves).await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM export").await, 5);
    let last = "SELECT count(*) FROM export WHERE id LIKE '%8' AND attempts = 4";
    assert_eq!(db.count(last).await, 1);
    let left = "SELECT count(*) FROM good_jobs";
    assert_eq!(
        db.count(left).await,
        3,
        "done, of another class, and performed"
    );
    let first = claim::next::<Export>("new")
        .load(&mut conn, 9)
        .await
        .unwrap();
    let numbers: Vec<_> = first.iter().map(|export| &export.id[35..]).collect();
    assert_eq!(numbers, ["1", "5"], "one of the key");
    let later = "SELECT count(*) FROM export WHERE attempts = 2 AND error_message = 'timeout' AND arguments = '[3]' \
                 AND run_at > now() + interval '30 min' AND run_at < now() + interval '2 h'";
    assert_eq!(db.count(later).await, 1);
    // The process has stopped.
    process
        .batch_execute("SELECT pg_advisory_unlock_all()")
        .await
        .unwrap();
    conn.batch_execute(moves).await.unwrap();
    assert_eq!(db.count(left).await, 2);
}

/// crates.io adds a job in this way, unless an equal one waits.
#[tokio::test]
async fn a_job_is_added_unless_an_equal_one_waits() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE job (id int8 GENERATED ALWAYS AS IDENTITY, payload text, done_at timestamptz, \
         locked_until timestamptz, locked_by text)",
    )
    .await;
    let count = async || db.count("SELECT count(*) FROM job").await;
    let add = async |sql: &str| db.connect().await.batch_execute(sql).await.unwrap();
    let sql = crate::guide::sql(PAGE, "INSERT INTO job").replace("$1", "'index'");
    add(&sql).await;
    add(&sql).await;
    assert_eq!(count().await, 1, "an equal one waits");
    db.run("UPDATE job SET locked_until = now() + interval '5 min', locked_by = 'w'")
        .await;
    let without = sql.replace("AND locked_until IS NULL", "");
    add(&without).await;
    assert_eq!(count().await, 1, "the job is lost");
    add(&sql).await;
    assert_eq!(count().await, 2, "it runs, and may have read the old state");
    // The row lock holds off workers until the change is committed.
    let mut producer = db.connect().await;
    producer
        .batch_execute(&format!("BEGIN; {sql}"))
        .await
        .unwrap();
    let free = "SELECT count(*) FROM (SELECT FROM job WHERE locked_until IS NULL FOR UPDATE SKIP LOCKED) AS free";
    assert_eq!(db.count(free).await, 0);
    producer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(db.count(free).await, 1);
    assert_eq!(count().await, 2);
}
