//! Tokens of a key grow although its table's sequence has been set back, or never got the values that the rows have.

use crate::bookings::execute;
use crate::lease::{database, key};
use advisory_runtime::lease::{Error, Table};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::task::JoinSet;

async fn grant(conn: &mut AsyncPgConnection, text: &str) -> i64 {
    let table = Table::new();
    let lease = table.acquire(conn, key(text)).await.unwrap();
    assert!(table.release(conn, &lease).await.unwrap());
    lease.token().get()
}

/// Logical replication copies rows, and no values of sequences.
#[tokio::test]
async fn rows_that_arrived_without_the_sequence_get_larger_tokens() {
    let db = database().await;
    let mut conn = db.connect().await;
    grant(&mut conn, "k").await;
    db.run("UPDATE advisory_lease SET token = 5001; ALTER SEQUENCE advisory_lease_token RESTART")
        .await;
    assert_eq!(grant(&mut conn, "k").await, 5002);
    assert_eq!(grant(&mut conn, "other").await, 5003);
    assert_eq!(grant(&mut conn, "k").await, 5004);
}

/// An insertion removes expired rows, but not those that show that the sequence is behind.
#[tokio::test]
async fn an_insertion_keeps_rows_that_the_sequence_has_not_reached() {
    let db = database().await;
    db.run(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256(n::text::bytea), 10000 + n, 0, 'h', now(), now() FROM generate_series(1, 20) AS n",
    )
    .await;
    let mut conn = db.connect().await;
    for number in 0..20 {
        grant(&mut conn, &format!("new:{number}")).await;
    }
    let old = "SELECT count(*) FROM advisory_lease WHERE token > 10000";
    assert_eq!(db.count(old).await, 20);
    // The key of one of them.
    assert_eq!(grant(&mut conn, "7").await, 10_008);
    assert_eq!(grant(&mut conn, "another").await, 10_021);
    Table::new().sweep(&mut conn).await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}

#[tokio::test]
async fn a_truncated_table_does_not_restart_the_sequence() {
    let db = database().await;
    let mut conn = db.connect().await;
    for _ in 0..5 {
        grant(&mut conn, "k").await;
    }
    db.run("TRUNCATE advisory_lease RESTART IDENTITY").await;
    assert_eq!(grant(&mut conn, "k").await, 6);
}

/// Else nothing would show any more that a number below it was granted before.
#[tokio::test]
async fn a_sweep_keeps_rows_that_the_sequence_has_not_reached() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    db.run(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256(text::bytea), token, 0, 'h', now(), now() FROM (VALUES ('a', 1), ('b', 2), ('c', 3)) AS v (text, token);
         SELECT setval('advisory_lease_token', 1)",
    )
    .await;
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 1);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 2);
    assert_eq!(grant(&mut conn, "c").await, 4);
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 2);
}

/// Many acquirers of a few keys, while somebody sets the sequence back again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_for_all_while_the_sequence_is_set_back() {
    const ENOUGH: usize = 200;
    let db = Arc::new(database().await);
    db.run("CREATE TABLE granted (n bigserial, key text, token int8)")
        .await;
    let grants = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (db, grants) = (Arc::clone(&db), Arc::clone(&grants));
        tasks.spawn(async move {
            let (mut conn, table) = (db.connect().await, Table::new());
            for round in task.. {
                if grants.load(Relaxed) >= ENOUGH {
                    return;
                }
                let text = format!("k{}", round % 3);
                match table.acquire(&mut conn, key(&text)).await {
                    Ok(lease) => {
                        let token = lease.token();
                        let note =
                            format!("INSERT INTO granted (key, token) VALUES ('{text}', {token})");
                        execute(&mut conn, &note).await.unwrap();
                        assert!(table.release(&mut conn, &lease).await.unwrap());
                        if grants.fetch_add(1, Relaxed) % 20 == 0 {
                            db.run("SELECT setval('advisory_lease_token', 1)").await;
                        }
                    }
                    Err(error) => assert!(error.is_held(), "{error:?}"),
                }
            }
        });
    }
    tasks.join_all().await;
    let out_of_order = "SELECT count(*) FROM granted AS a JOIN granted AS b \
                        ON a.key = b.key AND a.n < b.n AND a.token >= b.token";
    assert_eq!(db.count(out_of_order).await, 0);
}

/// A role that may draw a number and not move the sequence is refused while it is behind, and told which right it lacks.
#[tokio::test]
async fn a_role_that_may_not_move_the_sequence_is_told_what_to_grant() {
    let db = database().await;
    let worker = format!("lease_mover_{}", std::process::id());
    db.run(&format!(
        "CREATE ROLE {worker}; GRANT SELECT, INSERT, UPDATE, DELETE ON advisory_lease TO {worker}; \
         GRANT USAGE ON SEQUENCE advisory_lease_token TO {worker}"
    ))
    .await;
    let mut conn = db.connect().await;
    conn.batch_execute(&format!("SET ROLE {worker}"))
        .await
        .unwrap();
    assert_eq!(grant(&mut conn, "k").await, 1);
    db.run("UPDATE advisory_lease SET token = 70").await;
    let refused = Table::new().acquire(&mut conn, key("k")).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::MissingRights { .. }), "{error:?}");
    let said = error.to_string();
    let statement = "GRANT USAGE, UPDATE ON SEQUENCE public.advisory_lease_token TO";
    assert!(said.contains(statement), "{said}");
    db.run(&format!("{statement} {worker}")).await;
    // The refused grant was released.
    assert_eq!(grant(&mut conn, "k").await, 72);
    for right in ["SELECT", "DELETE", "UPDATE"] {
        db.run(&format!("REVOKE {right} ON advisory_lease FROM {worker}"))
            .await;
        let refused = Table::new().acquire(&mut conn, key("k")).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::MissingRights { .. }), "{error:?}");
    }
    conn.batch_execute("RESET ROLE").await.unwrap();
    db.run(&format!("DROP OWNED BY {worker}; DROP ROLE {worker}"))
        .await;
}

/// A number that it cannot be moved to is not granted.
#[tokio::test]
async fn a_sequence_at_its_end_or_that_wraps_grants_nothing() {
    let db = database().await;
    let mut conn = db.connect().await;
    db.run("ALTER SEQUENCE advisory_lease_token MAXVALUE 3")
        .await;
    for token in 1..=3 {
        assert_eq!(grant(&mut conn, "k").await, token);
    }
    for (setting, says) in [("NO CYCLE", "nextval"), ("CYCLE", "setval")] {
        db.run(&format!("ALTER SEQUENCE advisory_lease_token {setting}"))
            .await;
        for _ in 0..2 {
            let refused = Table::new().acquire(&mut conn, key("k")).await;
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::Database(_)), "{error:?}");
            let said = error.to_string();
            assert!(said.contains(says), "{said}");
        }
    }
    let held = "SELECT count(*) FROM advisory_lease WHERE expires_at > clock_timestamp()";
    assert_eq!(db.count(held).await, 0);
    let last = db.count("SELECT token FROM advisory_lease").await;
    db.run("ALTER SEQUENCE advisory_lease_token NO CYCLE MAXVALUE 1000")
        .await;
    assert_eq!(grant(&mut conn, "k").await, last + 1);
}

/// It waits for writers of the table, for a while: renewals wait behind it.
#[tokio::test]
async fn a_sequence_is_moved_when_open_writers_of_the_table_have_ended() {
    let db = database().await;
    let (mut conn, mut writer) = (db.connect().await, db.connect().await);
    for text in ["k", "other"] {
        grant(&mut conn, text).await;
    }
    db.run("SELECT setval('advisory_lease_token', 1)").await;
    writer
        .batch_execute("BEGIN; UPDATE advisory_lease SET holder = 'w' WHERE token = 1")
        .await
        .unwrap();
    let refused = Table::new().acquire(&mut conn, key("other")).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    writer.batch_execute("COMMIT").await.unwrap();
    let token = grant(&mut conn, "other").await;
    assert!(token > 3, "{token}");
    assert_eq!(grant(&mut conn, "new").await, token + 1);
}
