//! A lock that a program left on a session behind a pooler, which the command itself uses too.

use advisory_tests::{Bouncer, Database, left_out};
use diesel::dsl::{select, sql};
use diesel::sql_types::{Integer, Nullable};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use serde_json::Value;

use crate::locks::{does, json, locks, locks_at};
use crate::programs::Said;

/// Leaves a session-level lock on a pooler's session, and returns the process id of its backend.
async fn leave_lock(db: &Database, pooled: &str) -> i32 {
    let mut conn = AsyncPgConnection::establish(pooled).await.unwrap();
    let acquire = "SET application_name = 'job'; SELECT pg_advisory_lock(7)";
    does(&mut conn, acquire).await;
    drop(conn);
    holder(db).await.unwrap()
}

/// The backend that holds the lock.
async fn holder(db: &Database) -> Option<i32> {
    let holder = "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 \
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    let mut conn = db.connect().await;
    let pid = select(sql::<Nullable<Integer>>(holder));
    pid.get_result(&mut conn).await.unwrap()
}

/// The row of the lock is shown, and nothing that the command itself has sent.
fn shows_lock_only(said: &Said, pid: i32) {
    assert_eq!((said.code, &*said.err), (Some(0), ""));
    let row = said.out.lines().find(|line| line.starts_with("7 "));
    let row = row.unwrap_or_else(|| panic!("{}", said.out));
    assert!(row.contains(&format!("  {pid}  session  ")), "{row}");
    for own in ["cargo-advisory", "SELECT", "active"] {
        assert!(!row.contains(own), "{own}: {row}");
    }
    let note = format!("{pid} is a session of a pooler");
    assert!(said.out.contains(&note), "{}", said.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_session_is_not_shown_as_the_command() {
    for settings in [
        "pool_mode = transaction",
        "pool_mode = transaction\napplication_name_add_host = 1",
    ] {
        let db = Database::create().await;
        let bouncer = match Bouncer::start(&db, settings).await {
            Ok(bouncer) => bouncer,
            Err(why) => return left_out("pgbouncer", why),
        };
        let pooled = bouncer.url(&db);
        let mut pid = 0;
        for _ in 0..20 {
            pid = leave_lock(&db, &pooled).await;
            shows_lock_only(&locks_at(&pooled, &[]).await, pid);
            // pgbouncer closes the session of a client that leaves before its last message is answered.
            if holder(&db).await == Some(pid) {
                break;
            }
        }
        shows_lock_only(&locks(&db, &[]).await, pid);
        let value = json(&db, &[]).await;
        assert_eq!(value["locks"][0]["holders"][0]["scope"], "session");
        let backend = &value["backends"][0];
        assert_eq!(backend["pid"], pid);
        assert_eq!(backend["application"], "");
        assert_eq!(backend["query"], "");
        assert_eq!(backend["state"], "idle");
        let said = locks(&db, &["--filter", "cargo-advisory"]).await;
        assert!(said.out.starts_with("no advisory locks"), "{}", said.out);
        let ended = locks(&db, &["terminate", "--yes", &pid.to_string()]).await;
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(!ended.err.contains("cargo-advisory"), "{}", ended.err);
        db.until_no_locks().await;
    }
}

/// It acquires nothing, so its last statement asks for no lock, and it is not among the tries.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_shows_nothing_of_the_runs_before_it() {
    let db = Database::create().await;
    let bouncer = match Bouncer::start(&db, "pool_mode = transaction").await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out("pgbouncer", why),
    };
    let mut conn = db.connect().await;
    does(&mut conn, "SELECT pg_advisory_lock(7)").await;
    for url in [&bouncer.url(&db), db.url(), &bouncer.url(&db)] {
        let said = locks_at(url, &["--json"]).await;
        let value: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(value["backends"].as_array().unwrap().len(), 1, "{value}");
        assert_eq!(value["locks"][0]["tries"], serde_json::json!([]));
    }
    drop(conn);
}
