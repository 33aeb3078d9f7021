//! Rows of which each value of a column has a limit of running rows.

use crate::tenant_jobs::{One, Two, by_key, job, jobs, next};
use advisory_runtime::claim::{self, Claim, Claimed, Error};
use advisory_runtime::{blocking, xact};
use advisory_tests::bookings::{execute, finish};
use advisory_tests::futures::dropped;
use advisory_tests::statements::{explain, names, run};
use advisory_tests::{Database, Proxy, assert_matches, claims};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Instant;

async fn ids<T: Claim>(
    conn: &mut AsyncPgConnection,
    limit: u32,
    id: impl Fn(&T) -> i64,
) -> Vec<i64> {
    let jobs = claims::load::<T>(conn, limit).await;
    let mut ids: Vec<_> = jobs.iter().map(|job| id(job)).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn one_row_of_each_value_is_claimed_at_a_time_in_order() {
    let db = jobs(&[("a", 3), ("b", 2)]).await;
    let mut conn = db.connect().await;
    let mut order = Vec::new();
    let first = next(&mut conn).await.unwrap();
    let other = next(&mut conn).await.unwrap();
    assert_eq!((first.id, &*first.tenant_id), (1, "a"));
    assert_eq!((other.id, &*other.tenant_id), (4, "b"));
    assert!(next(&mut conn).await.is_none(), "both are at their limit");
    assert!(by_key(&mut conn, 2).await.is_none(), "by its key, too");
    claim::release(&mut conn, &first).await.unwrap();
    claim::complete(&mut conn, &other).await.unwrap();
    while let Some(job) = next(&mut conn).await {
        order.push(job.id);
        claim::complete(&mut conn, &job).await.unwrap();
    }
    assert_eq!(order, [1, 2, 3, 5]);
    assert!(by_key(&mut conn, 2).await.is_none(), "it is completed");
}

#[tokio::test]
async fn a_batch_takes_as_many_rows_of_a_value_as_may_run() {
    let db = jobs(&[("a", 5), ("b", 1), ("c", 5)]).await;
    let mut conn = db.connect().await;
    let id = |job: &Two| job.id;
    assert_eq!(ids(&mut conn, 10, id).await, [1, 2, 6, 7, 8]);
    assert!(ids(&mut conn, 10, id).await.is_empty());
    db.run("UPDATE job SET locked_until = NULL, locked_by = NULL WHERE id IN (1, 7)")
        .await;
    assert_eq!(ids(&mut conn, 1, id).await, [1]);
    assert_eq!(ids(&mut conn, 1, id).await, [7]);
    assert!(ids(&mut conn, 1, id).await.is_empty());
}

#[tokio::test]
async fn an_expired_claim_counts_no_more_and_its_row_comes_first() {
    let db = jobs(&[("a", 2)]).await;
    let mut conn = db.connect().await;
    for attempt in 1..=3 {
        let job = next(&mut conn).await.unwrap();
        assert_eq!(job.id, 1, "{attempt}");
        assert!(next(&mut conn).await.is_none());
        db.run("UPDATE job SET locked_until = clock_timestamp() - interval '1 hour'")
            .await;
        db.run("UPDATE job SET locked_until = NULL WHERE locked_by IS NULL")
            .await;
    }
    // Its last attempt is over, so it fails, and the same call claims the one behind it.
    assert_eq!(next(&mut conn).await.unwrap().id, 2);
    let failed = "SELECT count(*) FROM job WHERE failed_at IS NOT NULL AND locked_by IS NULL";
    assert_eq!(db.count(failed).await, 1);
}

/// More tenants with locked rows than a reservation reads in one go.
#[tokio::test]
async fn rows_that_somebody_has_locked_are_passed_over() {
    let names: Vec<String> = (0..90)
        .map(|nth| format!("t{nth:02} {{\",\\\\}}"))
        .collect();
    let tenants: Vec<_> = names.iter().map(|name| (&**name, 1)).collect();
    let db = jobs(&tenants).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let lock = "BEGIN; SELECT FROM job WHERE id <= 89 FOR UPDATE";
    run(&mut other, lock).await;
    assert_eq!(next(&mut conn).await.unwrap().id, 90);
    assert!(next(&mut conn).await.is_none());
    run(&mut other, "ROLLBACK").await;
    assert_eq!(next(&mut conn).await.unwrap().id, 1);
}

#[tokio::test]
async fn conditions_and_changes_apply_to_limited_rows() {
    let db = jobs(&[("a", 2), ("b", 2)]).await;
    let mut conn = db.connect().await;
    let wanted = job::tenant_id.eq("b");
    // Diesel keeps the text ones not prepared.
    let text = diesel::dsl::sql::<diesel::sql_types::Bool>;
    let one = || claim::next::<One>("worker");
    for (next, found) in [
        (one().filter(wanted), true),
        (one().filter(wanted), false),
        (one().filter(text("tenant_id = 'b'")), false),
    ] {
        let claimed = next.first(&mut conn).await.unwrap();
        assert_eq!(claimed.is_some(), found);
    }
    let two = || claim::next::<Two>("worker");
    for (next, id) in [
        (two().filter(text("job.tenant_id = 'a'")), 1),
        (two().set(job::attempts.eq(7)), 2),
    ] {
        let claimed = next.first(&mut conn).await.unwrap();
        assert_eq!(claimed.unwrap().id, id);
    }
    assert_eq!(db.count("SELECT sum(attempts) FROM job").await, 8);
}

#[tokio::test]
async fn a_wanted_row_need_not_be_the_first_of_its_value() {
    let db = jobs(&[("a", 3)]).await;
    let mut conn = db.connect().await;
    let next = claim::next::<One>("worker").filter(job::id.eq(2));
    assert_eq!(next.first(&mut conn).await.unwrap().unwrap().id, 2);
}

#[tokio::test]
async fn levels_of_a_role_change_nothing_and_an_open_one_is_refused() {
    let db = jobs(&[("a", 2)]).await;
    let mut conn = db.connect().await;
    for level in ["repeatable read", "serializable"] {
        let set = format!("SET default_transaction_isolation = '{level}'");
        run(&mut conn, &set).await;
        let job = next(&mut conn).await.unwrap();
        assert!(next(&mut conn).await.is_none());
        claim::release(&mut conn, &job).await.unwrap();
        for by_key in [false, true] {
            let next = claim::next::<One>("worker");
            let next = if by_key { next.key(2) } else { next };
            let refused = conn.transaction(async |conn| next.first(conn).await);
            assert_matches!(refused.await, Err(Error::StaleSnapshot { .. }));
        }
    }
    assert_eq!(db.count("SELECT count(locked_by) FROM job").await, 0);
}

#[tokio::test]
async fn a_claim_in_a_transaction_takes_its_place_until_its_end() {
    let db = jobs(&[("a", 2), ("b", 1)]).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    claims::roll_back(&mut conn, async |conn| {
        assert_eq!(next(conn).await.unwrap().id, 1);
        assert_eq!(next(conn).await.unwrap().id, 3, "its own claims count");
        assert!(next(conn).await.is_none());
        assert!(next(&mut other).await.is_none(), "it does not wait");
        Ok(())
    })
    .await;
    assert_eq!(next(&mut other).await.unwrap().id, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_claims_have_the_limits_too() {
    let db = jobs(&[("a", 2), ("b", 1)]).await;
    let (mut conn, mut other) = (db.establish(), db.connect().await);
    let first = || blocking::claim::next::<One>("worker");
    let job = first().first(&mut conn).unwrap().unwrap();
    let second = first().first(&mut conn).unwrap().unwrap();
    assert_eq!((job.id, second.id), (1, 3));
    assert!(first().first(&mut conn).unwrap().is_none());
    assert!(next(&mut other).await.is_none());
    assert!(first().key(2).first(&mut conn).unwrap().is_none());
    blocking::claim::complete(&mut conn, &job).unwrap();
    let by_key = first().key(2).first(&mut conn).unwrap();
    assert_eq!(by_key.unwrap().id, 2);
}

#[tokio::test]
async fn a_prepared_claim_with_a_limit_is_one_round_trip() {
    let db = jobs(&[("a", 9), ("b", 9)]).await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    for is_prepared in [false, true] {
        let next = || claim::next::<One>("worker");
        // Only values with a wanted row are locked.
        let of_b = next().filter(job::tenant_id.eq("b"));
        for next in [next(), next().key(1), of_b] {
            proxy.reset();
            let job = next.first(&mut conn).await.unwrap().unwrap();
            if is_prepared {
                assert_eq!(proxy.round_trips(), 1, "{:#?}", proxy.queries());
            }
            claim::release(&mut conn, &job).await.unwrap();
        }
    }
    // No transaction stays open, and no lock is held.
    finish(xact::begin(&mut conn, 1).await.unwrap()).await;
    assert!(db.locks().await.is_empty());
}

/// Rows behind a value that is at its limit are not read, under generic plans too.
#[tokio::test]
async fn a_backlog_of_one_value_is_not_read() {
    let db = jobs(&[("a", 50_000), ("b", 2), ("c", 2)]).await;
    db.run("VACUUM ANALYZE job").await;
    let mut conn = db.connect().await;
    run(&mut conn, "SET plan_cache_mode = force_generic_plan").await;
    let first = next(&mut conn).await.unwrap();
    assert_eq!(first.id, 1);
    assert_eq!(next(&mut conn).await.unwrap().id, 50_001);
    let names = names(&mut conn, "advisory.claim").await;
    assert_eq!(names.len(), 2);
    run(&mut conn, "BEGIN").await;
    // The reservation, and the claim.
    for (name, values) in names.iter().zip(["'{}', 0, '{}'", "'worker#'"]) {
        let execute = format!("EXECUTE {name}({values})");
        let plan = explain(&mut conn, "EXPLAIN (ANALYZE, BUFFERS)", &execute).await;
        assert!(!plan.contains("Seq Scan on job"), "{plan}");
        let read = plan.split("Buffers: shared hit=").nth(1).unwrap();
        let read: u32 = read.split([' ', '\n']).next().unwrap().parse().unwrap();
        assert!(read < 200, "{read} pages: {plan}");
    }
    run(&mut conn, "COMMIT").await;
    assert_eq!(next(&mut conn).await.map(|job| job.id), None);
    claim::complete(&mut conn, &first).await.unwrap();
    assert_eq!(next(&mut conn).await.unwrap().id, 2);
}

/// More values are at their limit, and more of their rows are in front, than the first reservations
/// reach.
#[tokio::test]
async fn a_row_behind_any_number_of_values_at_their_limit_is_found() {
    let db = jobs(&[]).await;
    db.run(
        "INSERT INTO job (tenant_id, run_at) SELECT 'full ' || nth % 700, now() - interval '1 day' + nth * interval '1 ms' \
             FROM generate_series(1, 7000) AS nth; \
         UPDATE job SET locked_by = 'other', locked_until = now() + interval '1 day' WHERE id <= 700; \
         INSERT INTO job (tenant_id, run_at) VALUES ('free', now())",
    )
    .await;
    let mut conn = db.connect().await;
    assert_eq!(next(&mut conn).await.unwrap().tenant_id, "free");
    assert!(next(&mut conn).await.is_none());
}

/// They are ended a thousand at a time, by the indexes: not one by one, each with the whole table.
#[tokio::test]
async fn rows_without_an_attempt_left_do_not_have_the_table_read() {
    let db = jobs(&[("a", 50_000)]).await;
    db.run("UPDATE job SET attempts = 3 WHERE id <= 5000; UPDATE job SET tenant_id = 'tenant ' || id % 1000; ANALYZE job")
        .await;
    db.run("SELECT pg_stat_force_next_flush()").await;
    let scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'job'";
    let before = db.count(scans).await;
    let mut conn = db.connect().await;
    // As for a table that is much larger.
    run(&mut conn, "SET random_page_cost = 0.01").await;
    assert_eq!(next(&mut conn).await.unwrap().id, 5_001);
    let failed = "SELECT count(*) FROM job WHERE failed_at IS NOT NULL";
    run(&mut conn, "SELECT pg_stat_force_next_flush()").await;
    assert_eq!(db.count(scans).await, before);
    assert_eq!(db.count(failed).await, 5_000);
}

/// A value that is in front, at its limit, has all others behind it wait for their turn, but each
/// gets one.
#[tokio::test]
async fn each_value_behind_a_backlog_gets_its_turn() {
    let db = jobs(&[("hot", 1_000)]).await;
    db.run(
        "INSERT INTO job (tenant_id, run_at) SELECT 'tenant ' || nth % 100, now() - interval '1 hour' \
             FROM generate_series(1, 20000) AS nth; ANALYZE job",
    )
    .await;
    let mut conn = db.connect().await;
    assert_eq!(next(&mut conn).await.unwrap().tenant_id, "hot");
    let mut tenants = std::collections::HashSet::new();
    for _ in 0..2_000 {
        let job = next(&mut conn).await.unwrap();
        claim::complete(&mut conn, &job).await.unwrap();
        tenants.insert(job.tenant_id.clone());
        if tenants.len() == 100 {
            return;
        }
    }
    panic!("only {} of 100", tenants.len());
}

/// Renewals change none of the indexes, so the server need not write them.
#[tokio::test]
async fn three_indexes_are_printed_and_renewals_change_none() {
    let indexes = claim::indexes::<One>();
    assert_eq!(indexes.len(), 3, "{indexes:#?}");
    let parts = [
        "(\"run_at\", \"id\") WHERE \"completed_at\" IS NULL AND \"failed_at\" IS NULL;",
        "(pg_catalog.hash_record_extended(ROW(\"tenant_id\"),0), \"run_at\", \"id\") WHERE \"completed_at\" IS NULL AND \"failed_at\" IS NULL;",
        "(pg_catalog.hash_record_extended(ROW(\"tenant_id\"),0)) WHERE \"completed_at\" IS NULL AND \"failed_at\" IS NULL AND \"locked_by\" IS NOT NULL;",
    ];
    for (index, part) in indexes.iter().zip(parts) {
        assert!(index.ends_with(part), "{index}");
    }
    let db = jobs(&[("a", 1)]).await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await.unwrap();
    claim::renew(&mut conn, &job).await.unwrap();
    run(&mut conn, "SELECT pg_stat_force_next_flush()").await;
    let hot = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'job'";
    assert_eq!(db.count(hot).await, 1);
}

/// With another key, old and new instances of a program would not exclude each other while it is upgraded.
#[tokio::test]
async fn the_key_of_a_values_lock_never_changes() {
    let db = jobs(&[("a", 1)]).await;
    let mut conn = db.connect().await;
    let locked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
         AND (classid::int8 << 32 | objid::int8) = hashint8extended(hash_record_extended(ROW('a'::text), 0), 0) \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    claims::roll_back(&mut conn, async |conn| {
        assert!(next(conn).await.is_some());
        assert_eq!(db.count(locked).await, 1);
        Ok(())
    })
    .await;
    assert_eq!(db.count(locked).await, 0);
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = job)]
#[claim(ttl = "3s", run_at, per = "tenant_id", limit = 1)]
struct Brief {
    id: i64,
}

/// The lock of the value is held elsewhere for longer than the ttl.
#[tokio::test]
async fn the_wait_for_the_lock_of_a_value_does_not_count() {
    let db = jobs(&[("a", 1)]).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    // Prepared, so that both statements are sent at once.
    let job = claims::by_key::<Brief>(&mut conn, 1).await;
    claim::release(&mut conn, &job.unwrap()).await.unwrap();
    let lock =
        "SELECT pg_advisory_lock(hashint8extended(hash_record_extended(ROW('a'::text), 0), 0))";
    run(&mut other, lock).await;
    let freed = async {
        let long = "SELECT FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock' \
             AND query_start < clock_timestamp() - interval '3500 milliseconds'";
        db.until_some("a wait longer than the ttl", long).await;
        let unlock = "SELECT pg_advisory_unlock_all()";
        run(&mut other, unlock).await;
    };
    let (job, ()) = tokio::join!(claim::next("worker").key(1_i64).first(&mut conn), freed);
    let job: Claimed<Brief> = job.unwrap().unwrap();
    assert_eq!(job.id, 1);
    assert!(job.deadline() > Instant::now(), "a whole ttl from here");
}

/// As after a release that writes what this program cannot read.
#[tokio::test]
async fn an_unreadable_row_takes_no_other_with_it() {
    diesel::table! {
        parcel (id) {
            id -> BigInt,
            tenant_id -> Text,
            weight -> BigInt,
            run_at -> Timestamptz,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
        }
    }
    #[derive(Queryable, Selectable, Claim)]
    #[diesel(table_name = parcel)]
    #[claim(run_at)]
    struct Any {
        id: i64,
        #[expect(dead_code, reason = "it cannot be read where it is NULL")]
        weight: i64,
    }
    #[derive(Queryable, Selectable, Claim)]
    #[diesel(table_name = parcel)]
    #[claim(run_at, per = "tenant_id", limit = 9)]
    struct Limited {
        id: i64,
        #[expect(dead_code, reason = "it cannot be read where it is NULL")]
        weight: i64,
    }
    let db = Database::create().await;
    db.run(
        "CREATE TABLE parcel (id int8 PRIMARY KEY, tenant_id text NOT NULL DEFAULT 'a', weight int8 DEFAULT 1, \
             run_at timestamptz NOT NULL DEFAULT now(), locked_until timestamptz, locked_by text)",
    )
    .await;
    let mut conn = db.connect().await;
    for is_limited in [false, true] {
        db.run("TRUNCATE parcel; INSERT INTO parcel (id) VALUES (1), (2), (3); UPDATE parcel SET weight = NULL WHERE id = 2")
            .await;
        let ids = if is_limited {
            ids(&mut conn, 3, |job: &Limited| job.id).await
        } else {
            ids(&mut conn, 3, |job: &Any| job.id).await
        };
        assert_eq!(ids, [1, 3], "{is_limited}");
        // So that it does not come first again at once.
        let claimed = "SELECT count(*) FROM parcel WHERE locked_by IS NOT NULL";
        assert_eq!(db.count(claimed).await, 3);
        db.run("DELETE FROM parcel WHERE id <> 2; UPDATE parcel SET locked_until = NULL, locked_by = NULL")
            .await;
        let alone = claim::next::<Any>("worker").first(&mut conn).await;
        assert!(matches!(alone, Err(Error::Database(_))));
    }
}

#[tokio::test]
async fn an_error_of_the_statements_is_reported_at_once() {
    let db = jobs(&[("a", 1)]).await;
    let mut conn = db.connect().await;
    db.run("ALTER TABLE job DROP COLUMN attempts").await;
    for next in [claim::next::<One>("worker"), claim::next("worker").key(1)] {
        assert_matches!(next.first(&mut conn).await, Err(Error::Database(_)));
    }
    execute(&mut conn, "SELECT 1").await.unwrap();
}

/// Otherwise its transaction would stay open, and hold the value.
#[tokio::test]
async fn a_dropped_claim_leaves_no_transaction() {
    const WAITING: &str = "SELECT pid FROM pg_locks WHERE NOT granted AND locktype = 'advisory' \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let db = jobs(&[("a", 2)]).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    claims::roll_back(&mut other, async |other| {
        let _job = by_key(other, 1).await;
        let waiting = db.until_some("a claim that waits", WAITING);
        dropped(by_key(&mut conn, 2), waiting).await;
        db.until_none("the end of its wait", WAITING).await;
        Ok(())
    })
    .await;
}
