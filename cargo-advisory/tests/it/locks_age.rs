//! `cargo advisory locks --older-than`, when the age of a lock is not known.

use advisory_tests::futures::spawn;
use std::time::Duration;

use advisory_pattern::Record;
use advisory_runtime::lease::{Request, Table};
use advisory_tests::leases::orphan;
use advisory_tests::{Database, pid_of};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::live_view::{does, holder, json, locks, locks_at};
use crate::programs::{Said, assert_has, assert_starts, keyed, leased, program_of, run_at, url_as};

const GENEROUS: Duration = Duration::from_secs(60);

/// A session-level lock of a session that is older than two seconds and runs a statement
/// repeatedly.
struct Busy {
    pid: i32,
    stop: oneshot::Sender<()>,
    running: JoinHandle<AsyncPgConnection>,
}

impl Busy {
    async fn start(db: &Database, key: i64, sql: &'static str) -> Self {
        let mut conn = holder(db, "busy", &format!("SELECT pg_advisory_lock({key})")).await;
        let pid = pid_of(&mut conn).await;
        let young = format!(
            "SELECT 'young' FROM pg_stat_activity WHERE pid = {pid} AND backend_start > clock_timestamp() - interval '2.1 s'"
        );
        db.until_empty(GENEROUS, "an older session", &young).await;
        let (stop, mut stopped) = oneshot::channel();
        let running = spawn(async move {
            while stopped.try_recv().is_err() {
                conn.batch_execute(sql).await.unwrap();
            }
            conn
        });
        Self { pid, stop, running }
    }

    async fn stop(self) -> AsyncPgConnection {
        self.stop.send(()).unwrap();
        self.running.await.unwrap()
    }
}

fn assert_unknown(said: &Said, why: &str) {
    assert_eq!(said.code, Some(2), "{said:?}");
    let begins = "error: it is not known whether a lock is older than ";
    assert_starts(&said.err, begins);
    assert_has(&said.err, why);
    let counted = ", 1 lock of unknown age, 0 waiters in database `";
    assert_has(&said.out, "no advisory locks older than ");
    assert_has(&said.out, counted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_level_lock_of_a_busy_session_is_not_called_young() {
    let db = Database::create().await;
    let why = "a session-level lock can be older than the transaction and the last statement";
    for sql in [
        // Sleeps, because the session has to be busy.
        "SELECT pg_sleep(0.01)",
        "BEGIN; SELECT pg_sleep(0.01); COMMIT",
    ] {
        let busy = Busy::start(&db, 5, sql).await;
        assert_unknown(&locks(&db, &["--older-than", "2s"]).await, why);
        let value = json(&db, &["--older-than", "2s"]).await;
        let holder = &value["locks"][0]["holders"][0];
        assert_eq!(holder["pid"], busy.pid);
        let at_most = holder["held_at_most_ms"].as_u64().unwrap();
        assert!(at_most >= 2_000, "{holder}");
        // Every lock is certainly older than this.
        let said = locks(&db, &["--older-than", "0s"]).await;
        assert_eq!((said.code, &*said.err), (Some(1), ""), "{said:?}");
        locks(&db, &["--older-than", "1h"]).await.fine();
        // It is old once its session has been idle for that long.
        let conn = busy.stop().await;
        let recent = "SELECT 'recent' FROM pg_stat_activity WHERE application_name = 'busy' \
             AND state_change > clock_timestamp() - interval '2 s'";
        db.until_empty(GENEROUS, "a silent session", recent).await;
        let other = Busy::start(&db, 6, sql).await;
        let said = locks(&db, &["--older-than", "2s"]).await.exits(1);
        let counted = "1 lock older than 2s, 1 lock of unknown age, 0 waiters";
        assert_has(&said.out, counted);
        assert_starts(&said.err, "it is not known whether a lock is older");
        drop((conn, other.stop().await));
        db.until_no_locks().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_released_meanwhile_is_young() {
    let db = Database::create().await;
    // It sleeps, because the session has to be busy.
    let busy = Busy::start(&db, 5, "SELECT pg_sleep(0.01)").await;
    let looks = async {
        let look = "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_stat_activity \
             WHERE datname = current_database() AND query LIKE 'WITH RECURSIVE lock%' AND pid <> pg_backend_pid())";
        db.until_empty(GENEROUS, "a first look", look).await;
        let mut conn = busy.stop().await;
        does(&mut conn, "SELECT pg_advisory_unlock(5)").await;
        conn
    };
    let (said, _conn) = tokio::join!(locks(&db, &["--older-than", "2s"]), looks);
    assert_eq!((said.code, &*said.err), (Some(0), ""), "{said:?}");
    assert!(
        said.out
            .starts_with("no advisory locks older than 2s in database")
    );
}

/// It was prepared just now, but can have begun long before.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_prepared_transaction_is_not_called_young() {
    let db = Database::create().await;
    let prepare = "BEGIN; SELECT pg_advisory_xact_lock(5); PREPARE TRANSACTION 'age-1'";
    drop(holder(&db, "job", prepare).await);
    let said = locks(&db, &["--older-than", "1h"]).await;
    assert_unknown(
        &said,
        "the server does not record when a prepared transaction began",
    );
    db.run("ROLLBACK PREPARED 'age-1'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_older_if_its_transaction_is() {
    let db = Database::create().await;
    let mut conn = holder(&db, "job", "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    let pid = pid_of(&mut conn).await;
    // It sleeps, because a statement has to run.
    let running = spawn(async move { conn.batch_execute("SELECT pg_sleep(600)").await });
    let young = format!(
        "SELECT 'young' FROM pg_stat_activity WHERE pid = {pid} \
         AND (state <> 'active' OR xact_start > clock_timestamp() - interval '1 s')"
    );
    db.until_empty(GENEROUS, "an older transaction", &young)
        .await;
    let said = locks(&db, &["--older-than", "1s"]).await;
    assert_eq!((said.code, &*said.err), (Some(1), ""), "{said:?}");
    db.run(&format!("SELECT pg_terminate_backend({pid})")).await;
    running.await.unwrap().unwrap_err();
}

/// The role's name is a reserved word.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_role_does_not_see_is_not_called_young() {
    let db = Database::create().await;
    db.run("DROP ROLE IF EXISTS \"user\"; CREATE ROLE \"user\" LOGIN")
        .await;
    let held = holder(&db, "job", "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    let url = url_as(&db, "user");
    let said = locks_at(&url, &["--older-than", "1h"]).await;
    assert_unknown(
        &said,
        "role `user` does not see what other roles' sessions do",
    );
    let grant = "GRANT pg_monitor TO \"user\"\n";
    assert!(said.out.ends_with(grant), "{said:?}");
    let (_, grant) = said.out.rsplit_once(": ").unwrap();
    db.run(grant).await;
    locks_at(&url, &["--older-than", "1h"]).await.fine();
    drop(held);
    db.run("DROP ROLE \"user\"").await;
}

async fn lease_the_report(db: &Database) {
    let table = Table::new();
    table.set_up(&mut db.connect().await).await.unwrap();
    let request = Request::rendered("report:<month>", "report:1".to_owned());
    orphan(db.url(), &table, request).await;
}

/// Neither a lease that is renewed in time is old, nor a key that is done.
#[tokio::test(flavor = "multi_thread")]
async fn leases_and_claims_that_nobody_ends_are_older() {
    let db = Database::create().await;
    lease_the_report(&db).await;
    let leased = leased("report", "report:<month: text>");
    let program = program_of("locks-age.rmeta", &[leased]);
    db.run("CREATE TABLE jobs (id int PRIMARY KEY, locked_until timestamptz, locked_by text)")
        .await;
    let older = async || {
        let words = [
            "--older-than",
            "45s",
            "--claims",
            "jobs",
            "--artifact",
            &program,
        ];
        let said = locks(&db, &words).await;
        (said.code, said.out)
    };
    // The ttl is a minute.
    for (set, is_older) in [
        (
            "expires_at = clock_timestamp() + interval '55 s', acquired_at = clock_timestamp() - interval '1 day'",
            false,
        ),
        ("expires_at = clock_timestamp() + interval '20 s'", false),
        ("expires_at = clock_timestamp() + interval '10 s'", true),
        ("expires_at = 'infinity'", true),
        (
            "expires_at = clock_timestamp() + interval '10 s', is_kept = true",
            false,
        ),
    ] {
        db.run(&format!("UPDATE public.advisory_lease SET {set}"))
            .await;
        let (code, out) = older().await;
        assert_eq!(code, Some(is_older.into()), "{set}: {out}");
        assert_eq!(
            out.contains("; 1 lease not renewed for 45s"),
            is_older,
            "{out}"
        );
    }
    for (until, is_older) in [("30 s", false), ("-30 s", false), ("-50 s", true)] {
        let row = format!(
            "DELETE FROM jobs; INSERT INTO jobs VALUES (1, clock_timestamp() + interval '{until}', 'one#u')"
        );
        db.run(&row).await;
        let (code, out) = older().await;
        assert_eq!(code, Some(is_older.into()), "{until}: {out}");
        let says = "; 1 claim expired for 45s and not taken over";
        assert_eq!(out.contains(says), is_older, "{out}");
    }
}

/// Without its ttl a lease is neither old nor young, unless it was granted within the bound.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_unknown_renewal_is_not_called_young() {
    let db = Database::create().await;
    lease_the_report(&db).await;
    let leased = |ttl: Option<&str>, scope: &str| Record {
        kind: if scope == "none" { "struct" } else { "fn" }.to_owned(),
        scope: scope.to_owned(),
        ttl: ttl.map(str::to_owned),
        ..keyed("svc", "report", 7, "report:<month: text>")
    };
    let with_ttl = "is not known if its ttl is an expression";
    let expression = program_of(
        "locks-age-expression.rmeta",
        &[leased(Some("Duration::from_secs(30)"), "lease")],
    );
    let declared = program_of("locks-age-declared.rmeta", &[leased(None, "none")]);
    let several = program_of(
        "locks-age-several.rmeta",
        &[leased(None, "lease"), leased(Some("30s"), "lease")],
    );
    for (artifact, why) in [
        (None, "give the program as `--artifact`"),
        (Some(&expression), with_ttl),
        (Some(&declared), with_ttl),
        (Some(&several), with_ttl),
    ] {
        let names: Vec<&str> = artifact.map_or_else(Vec::new, |path| vec!["--artifact", path]);
        let older =
            async |bound| locks(&db, &[&names[..], &["--older-than", bound]].concat()).await;
        db.run(
            "UPDATE public.advisory_lease SET acquired_at = clock_timestamp() - interval '1 day'",
        )
        .await;
        let said = older("45s").await.exits(2);
        assert_has(&said.err, why);
        assert_has(&said.out, "; 1 lease of unknown renewal");
        assert_has(&said.out, "report:<month>");
        for listed in [locks(&db, &names).await, leases(&db, &names).await] {
            assert_eq!(listed.code, Some(0), "{listed:?}");
            assert_has(&listed.out, why);
        }
        db.run("UPDATE public.advisory_lease SET acquired_at = clock_timestamp()")
            .await;
        older("45s").await.fine();
    }
    // An old lock is still found.
    db.run("UPDATE public.advisory_lease SET acquired_at = clock_timestamp() - interval '1 day'")
        .await;
    let held = holder(&db, "job", "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    locks(&db, &["--older-than", "0s"]).await.exits(1);
    drop(held);
}

/// Runs `cargo advisory lease list`.
async fn leases(db: &Database, names: &[&str]) -> Said {
    run_at(db.url(), &[&["lease", "list"], names].concat()).await
}
