//! Two workers never have the same job: at the same time, after waits, and under any setting of a
//! role or `search_path`.

use crate::sync_job::{
    Brief, SyncJob, assert_lost, database, expire, lock_rows, next, row, state_of,
};
use advisory_runtime::claim::{self, Claimed, End, Error, State};
use advisory_tests::futures::spawn;
use advisory_tests::settings::setting;
use advisory_tests::statements::run;
use advisory_tests::{Database, assert_matches, claims, pid_of};
use diesel_async::AsyncPgConnection;
use std::time::{Duration, Instant};

/// Claims and completes jobs until there are none, and records each.
async fn work(mut conn: AsyncPgConnection, settings: &'static str, batch: u32) -> Vec<i64> {
    run(&mut conn, settings).await;
    let mut done = Vec::new();
    loop {
        let jobs: Vec<Claimed<SyncJob>> = match batch {
            1 => Vec::from_iter(claims::first(&mut conn).await),
            _ => claims::load(&mut conn, batch).await,
        };
        if jobs.is_empty() {
            return done;
        }
        for job in jobs {
            claim::complete(&mut conn, &job).await.unwrap();
            done.push(job.id);
        }
    }
}

async fn each_job_is_done_once(settings: &'static str) {
    let db = database(200).await;
    let mut workers = Vec::new();
    for batch in [1, 3].repeat(8) {
        workers.push(spawn(work(db.connect().await, settings, batch)));
    }
    let mut done = Vec::new();
    for worker in workers {
        done.extend(worker.await.unwrap());
    }
    done.sort_unstable();
    assert_eq!(done, (1..=200).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_workers_do_each_job_once() {
    each_job_is_done_once("SELECT 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stricter_levels_of_a_role_change_nothing() {
    each_job_is_done_once("SET default_transaction_isolation = 'repeatable read'").await;
    each_job_is_done_once("SET default_transaction_isolation = 'serializable'").await;
}

#[tokio::test]
async fn a_row_that_somebody_has_locked_is_passed_over() {
    let db = database(2).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    // And it is not waited for. This does not hold for concurrent writers: one that extends the
    // table makes the others wait, too.
    run(&mut conn, "SET lock_timeout = '1ms'").await;
    let lock = "BEGIN; SELECT FROM sync_jobs WHERE id = 2 FOR UPDATE";
    run(&mut other, lock).await;
    assert_eq!(next(&mut conn).await.id, 1);
    assert!(claims::first::<SyncJob>(&mut conn).await.is_none());
    run(&mut other, "ROLLBACK").await;
    assert_eq!(next(&mut conn).await.id, 2);
}

#[tokio::test]
async fn a_row_with_open_references_is_claimed() {
    let db = database(1).await;
    db.run("CREATE TABLE step (job int8 REFERENCES sync_jobs)")
        .await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    run(&mut other, "BEGIN; INSERT INTO step VALUES (1)").await;
    let job = next(&mut conn).await;
    claim::complete(&mut conn, &job).await.unwrap();
    run(&mut other, "COMMIT").await;
}

/// Locks the row until `meanwhile` is over, while a claim's statement waits for it.
async fn behind_a_lock<R: Send + 'static>(
    db: &Database,
    locks: &str,
    meanwhile: &str,
    statement: impl AsyncFnOnce(AsyncPgConnection) -> R,
) -> R {
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let pid = pid_of(&mut conn).await;
    run(&mut other, &format!("BEGIN; {locks}")).await;
    let (done, ()) = tokio::join!(statement(conn), async {
        db.until_blocked(pid).await;
        run(&mut other, meanwhile).await;
        run(&mut other, "COMMIT").await;
    });
    done
}

#[tokio::test]
async fn a_claim_lasts_for_its_ttl_from_when_its_wait_was_over() {
    let db = database(1).await;
    let pool = db.bb8(1).await;
    let lock = "SELECT FROM sync_jobs FOR UPDATE";
    let meanwhile = "CREATE TABLE released AS SELECT clock_timestamp() AS at FROM pg_sleep(4.1)";
    let called = Instant::now();
    let job = behind_a_lock(&db, lock, meanwhile, async |mut conn| {
        claims::by_key::<Brief>(&mut conn, 1).await.unwrap()
    })
    .await;
    let lasts =
        "SELECT count(*) FROM sync_jobs, released WHERE locked_until >= at + interval '4 s'";
    assert_eq!(db.count(lasts).await, 1);
    // By our own clock too, which started before the wait of 4.1 seconds: a ttl of 4 seconds from
    // then would be over earlier.
    assert!(job.deadline() > called + Duration::from_secs(4));
    let left = "SELECT (extract(epoch FROM locked_until - clock_timestamp()) * 1000000)::int8 FROM sync_jobs";
    let left = Duration::from_micros(db.count(left).await.try_into().unwrap());
    let margin = Duration::from_millis(400);
    let local = job.deadline().saturating_duration_since(Instant::now()) + margin;
    assert!(local <= left, "{local:?} here, {left:?} at the server");
    let ran = claim::run(&pool, &job, End::Fail, async { Ok::<_, Error>(job.id) }).await;
    assert_eq!(ran.unwrap(), 1);
    let completed = "SELECT count(completed_at) FROM sync_jobs";
    assert_eq!(db.count(completed).await, 1);
}

#[tokio::test]
async fn a_waiter_does_not_get_a_row_that_was_claimed_meanwhile() {
    let db = database(1).await;
    for level in ["read committed", "serializable"] {
        let claim = "UPDATE sync_jobs SET locked_until = clock_timestamp() + interval '5 minutes', locked_by = 'another'";
        let job = behind_a_lock(&db, claim, "SELECT 1", async |mut conn| {
            let set = format!("SET default_transaction_isolation = '{level}'");
            run(&mut conn, &set).await;
            claims::by_key::<SyncJob>(&mut conn, 1).await
        })
        .await;
        assert!(job.is_none(), "{level}");
        db.run("UPDATE sync_jobs SET locked_until = NULL, locked_by = NULL")
            .await;
    }
}

#[tokio::test]
async fn a_claim_that_expires_in_a_wait_cannot_be_renewed_or_ended() {
    let db = database(4).await;
    let expires = async |id: i64, way: &str| {
        let mut conn = db.connect().await;
        let job = claims::by_key::<Brief>(&mut conn, id).await.unwrap();
        let lock = format!("SELECT FROM sync_jobs WHERE id = {id} FOR UPDATE");
        let end = async |mut conn: AsyncPgConnection| match way {
            "renew" => claim::renew(&mut conn, &job).await,
            "complete" => claim::complete(&mut conn, &job).await,
            "fail" => claim::fail(&mut conn, &job, "why").await,
            _ => claim::release(&mut conn, &job).await,
        };
        assert_lost(behind_a_lock(&db, &lock, "SELECT pg_sleep(4.1)", end).await);
        assert_eq!(state_of(&mut conn, id).await, State::Expired, "{way}");
    };
    tokio::join!(
        expires(1, "renew"),
        expires(2, "complete"),
        expires(3, "fail"),
        expires(4, "release")
    );
}

#[tokio::test]
async fn a_concurrent_change_of_other_columns_keeps_the_claim() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await;
    let change = "UPDATE sync_jobs SET priority = 77";
    let ended = behind_a_lock(&db, change, "SELECT 1", async |mut conn| {
        claim::complete(&mut conn, &job).await
    })
    .await;
    ended.unwrap();
    assert_eq!(state_of(&mut conn, 1).await, State::Completed);
    assert_eq!(db.count("SELECT priority FROM sync_jobs").await, 77);
}

#[tokio::test]
async fn lock_timeout_bounds_the_wait_for_a_row() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    run(&mut conn, "SET lock_timeout = '20ms'").await;
    let mut other = db.connect().await;
    lock_rows(&mut other).await;
    let next = claim::next::<SyncJob>("worker").key(1);
    let error = next.first(&mut conn).await.unwrap_err();
    assert_matches!(error, Error::Database(_));
    assert!(error.database().is_some());
}

#[tokio::test]
async fn a_claim_waits_for_the_disk_where_its_session_would_not() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    let mode = "synchronous_commit";
    for (session, inside) in [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("remote_apply", "remote_apply"),
    ] {
        run(&mut conn, &format!("SET synchronous_commit = {session}")).await;
        for step in 0..4 {
            let job = match step {
                0 => None,
                _ => claims::by_key::<SyncJob>(&mut conn, 1).await,
            };
            run(&mut conn, "BEGIN").await;
            match (step, &job) {
                (1, Some(job)) => claim::renew(&mut conn, job).await.unwrap(),
                (2, Some(job)) => claim::complete(&mut conn, job).await.unwrap(),
                (3, Some(job)) => claim::fail(&mut conn, job, "why").await.unwrap(),
                _ => drop(next(&mut conn).await),
            }
            assert_eq!(setting(&mut conn, mode).await, inside, "{session}, {step}");
            run(&mut conn, "ROLLBACK").await;
            assert_eq!(setting(&mut conn, mode).await, session, "{step}");
            expire(&db).await;
        }
    }
}

/// Objects with the names that the statements use, which do nothing, or the wrong thing.
const HOSTILE: &str = "
    CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
    CREATE FUNCTION public.gen_random_uuid() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid';
    CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE FUNCTION public.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT ''on''';
    CREATE FUNCTION public.no(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.> (FUNCTION = public.no, LEFTARG = timestamptz, RIGHTARG = timestamptz);
    CREATE OPERATOR public.<= (FUNCTION = public.no, LEFTARG = timestamptz, RIGHTARG = timestamptz);
    CREATE FUNCTION public.no(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.no, LEFTARG = text, RIGHTARG = text);
    CREATE FUNCTION public.no(int8, int8) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.no, LEFTARG = int8, RIGHTARG = int8);
    CREATE FUNCTION public.gone(timestamptz, interval) RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
    CREATE OPERATOR public.+ (FUNCTION = public.gone, LEFTARG = timestamptz, RIGHTARG = interval);
    CREATE FUNCTION public.gone(float8, interval) RETURNS interval LANGUAGE sql AS 'SELECT NULL::interval';
    CREATE OPERATOR public.* (FUNCTION = public.gone, LEFTARG = float8, RIGHTARG = interval);
    CREATE FUNCTION public.gone(text, text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
    CREATE OPERATOR public.|| (FUNCTION = public.gone, LEFTARG = text, RIGHTARG = text);
    CREATE DOMAIN public.interval AS text CHECK (false);
    CREATE DOMAIN public.float8 AS text CHECK (false);
    CREATE TABLE public.advisory_claim (id int8);
";

#[tokio::test]
async fn hostile_twins_first_on_the_search_path_change_nothing() {
    let db = database(3).await;
    db.run(HOSTILE).await;
    let mut conn = db.connect().await;
    run(&mut conn, "SET search_path = public, pg_catalog").await;
    let first = next(&mut conn).await;
    assert_eq!(first.id, 3);
    assert_eq!(first.locked_by().len(), "worker#".len() + 36);
    claim::renew(&mut conn, &first).await.unwrap();
    claim::complete(&mut conn, &first).await.unwrap();
    let batch = claims::load::<SyncJob>(&mut conn, 2).await;
    assert_eq!(batch.len(), 2);
    claim::fail(&mut conn, &batch[0], "why").await.unwrap();
    claim::release(&mut conn, &batch[1]).await.unwrap();
    let id = batch[1].id;
    let again = claims::by_key::<SyncJob>(&mut conn, id).await.unwrap();
    assert!(claims::by_key::<SyncJob>(&mut conn, id).await.is_none());
    let mut plain = db.connect().await;
    assert_eq!(state_of(&mut plain, id).await, State::Running);
    let shown: String = row(&mut plain, id).await;
    assert!(shown.contains(again.locked_by()), "{shown}");
}
