//! Tokens of a key grow even if its table's sequence has been set back, or never got the rows'
//! values.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Error, Lease, Table};
use advisory_tests::Proxy;
use advisory_tests::bookings::execute;
use advisory_tests::leases::{FIRST, database, key};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::task::JoinSet;

async fn grant(conn: &mut AsyncPgConnection, text: &str) -> i64 {
    let table = Table::new();
    let lease = table.acquire(conn, key(text)).await.unwrap();
    assert!(table.release(conn, &lease).await.unwrap());
    lease.token().get()
}

/// Logical replication copies rows, but not the values of sequences.
#[tokio::test]
async fn rows_that_arrived_without_the_sequence_get_larger_tokens() {
    let db = database().await;
    let mut conn = db.connect().await;
    grant(&mut conn, "k").await;
    db.run("UPDATE advisory_lease SET token = token + 5000; ALTER SEQUENCE advisory_lease_token RESTART")
        .await;
    assert_eq!(grant(&mut conn, "k").await, FIRST + 5002);
    assert_eq!(grant(&mut conn, "other").await, FIRST + 5003);
    assert_eq!(grant(&mut conn, "k").await, FIRST + 5004);
}

/// An insertion removes expired rows, except those that show that the sequence is behind.
#[tokio::test]
async fn an_insertion_keeps_rows_that_the_sequence_has_not_reached() {
    let db = database().await;
    db.run(&format!(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256(n::text::bytea), {FIRST} + 10000 + n, 0, 'h', now(), now() FROM generate_series(1, 20) AS n",
    ))
    .await;
    let mut conn = db.connect().await;
    for number in 0..20 {
        grant(&mut conn, &format!("new:{number}")).await;
    }
    let old = format!("SELECT count(*) FROM advisory_lease WHERE token > {FIRST} + 10000");
    assert_eq!(db.count(&old).await, 20);
    // The key of one of them.
    assert_eq!(grant(&mut conn, "7").await, FIRST + 10_021);
    assert_eq!(grant(&mut conn, "another").await, FIRST + 10_022);
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
    assert_eq!(grant(&mut conn, "k").await, FIRST + 6);
}

/// Otherwise nothing would show that a larger number was granted before.
#[tokio::test]
async fn a_sweep_keeps_rows_that_the_sequence_has_not_reached() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    db.run(&format!(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256(text::bytea), {FIRST} + token, 0, 'h', now(), now() FROM (VALUES ('a', 1), ('b', 2), ('c', 3)) AS v (text, token);
         SELECT setval('advisory_lease_token', {FIRST} + 1)",
    ))
    .await;
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 1);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 2);
    assert_eq!(grant(&mut conn, "c").await, FIRST + 4);
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 2);
}

/// Many acquirers of a few keys, while the sequence is set back repeatedly. Each key has a row:
/// what a sequence that is set back promises is a token above the one in the row. A row is removed
/// only by the insertion of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_for_all_while_the_sequence_is_set_back() {
    const ENOUGH: usize = 200;
    let db = Arc::new(database().await);
    db.run("CREATE TABLE granted (n bigserial, key text, token int8)")
        .await;
    let (mut conn, table) = (db.connect().await, Table::new());
    let mut leases = Vec::new();
    for text in ["k0", "k1", "k2"] {
        leases.push(table.acquire(&mut conn, key(text)).await.unwrap());
    }
    for lease in &leases {
        assert!(table.release(&mut conn, lease).await.unwrap());
    }
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

/// A role that may draw a number but not move the sequence is refused while it is behind, and
/// learns which right it lacks.
#[tokio::test]
async fn a_role_that_may_not_move_the_sequence_learns_what_to_grant() {
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
    assert_eq!(grant(&mut conn, "k").await, FIRST + 1);
    db.run("UPDATE advisory_lease SET token = token + 69").await;
    let refused = Table::new().acquire(&mut conn, key("k")).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::MissingRights { .. }), "{error:?}");
    let said = error.to_string();
    let statement = "GRANT USAGE, UPDATE ON SEQUENCE public.advisory_lease_token TO";
    assert!(said.contains(statement), "{said}");
    db.run(&format!("{statement} {worker}")).await;
    assert_eq!(grant(&mut conn, "k").await, FIRST + 71);
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

/// A number that the sequence cannot be moved to is not granted.
#[tokio::test]
async fn a_sequence_at_its_end_or_that_wraps_grants_nothing() {
    let db = database().await;
    let mut conn = db.connect().await;
    let last = FIRST + 3;
    db.run(&format!(
        "ALTER SEQUENCE advisory_lease_token MAXVALUE {last}"
    ))
    .await;
    for token in FIRST + 1..=last {
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
    db.run("ALTER SEQUENCE advisory_lease_token NO CYCLE NO MAXVALUE")
        .await;
    assert_eq!(grant(&mut conn, "k").await, last + 1);
}

/// It waits for writers of the table, for a limited time: renewals wait after it.
#[tokio::test]
async fn a_sequence_is_moved_after_open_writers_have_ended() {
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

/// A table of a program from before, and such a program beside a new one.
#[tokio::test]
async fn a_small_sequence_is_moved_to_the_timeline_once() {
    let db = database().await;
    let mut conn = db.connect().await;
    db.run(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256('k'), 70, 0, 'h', now(), now();
         SELECT setval('advisory_lease_token', 70)",
    )
    .await;
    let token = grant(&mut conn, "k").await;
    assert_eq!(token, FIRST + 71);
    // What a program from before draws.
    let drawn = db.count("SELECT nextval('advisory_lease_token')").await;
    assert_eq!(drawn, token + 1);
    assert_eq!(grant(&mut conn, "other").await, drawn + 1);
}

/// `pg_upgrade` starts with timeline 1 again and keeps the sequence: a failover behind it must be
/// seen.
#[tokio::test]
async fn a_timeline_that_starts_again_moves_the_sequence_up() {
    let db = database().await;
    let mut conn = db.connect().await;
    let last = (5_i64 << 40) + 7;
    db.run(&format!("SELECT setval('advisory_lease_token', {last})"))
        .await;
    let token = grant(&mut conn, "k").await;
    assert_eq!(token, (4097_i64 << 40) + 8);
    assert_eq!(grant(&mut conn, "k").await, token + 1);
}

/// A grant whose connection is lost before the sequence is moved.
#[tokio::test]
async fn nothing_is_granted_before_the_sequence_is_in_the_timeline() {
    let db = database().await;
    db.run("ALTER SEQUENCE advisory_lease_token RESTART").await;
    let (proxy, table) = (Proxy::start(&db).await, Table::new());
    for text in ["a", "b", "c"] {
        let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
        proxy.cut_before("LOCK TABLE");
        table.acquire(&mut conn, key(text)).await.unwrap_err();
    }
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
    let mut conn = db.connect().await;
    let first = grant(&mut conn, "d").await;
    assert!(first > FIRST, "{first}");
    assert_eq!(grant(&mut conn, "e").await, first + 1);
}

/// Storage that has both keys' effects in one place would take the writes of one for those of the
/// other.
#[tokio::test]
async fn two_keys_never_have_the_same_token() {
    let db = database().await;
    let mut conn = db.connect().await;
    // The rows of a server whose sequence was not copied. Each has the token that is one more than
    // another's.
    db.run(&format!(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256(n::text::bytea), {FIRST} + 100 + n, 0, 'h', now(), now() FROM generate_series(1, 5) AS n",
    ))
    .await;
    let mut tokens = HashSet::new();
    for number in 1..=5 {
        let tried = Table::new()
            .acquire(&mut conn, key(&number.to_string()))
            .await;
        let token = tried.unwrap().token().get();
        let rows = format!("SELECT count(*) FROM advisory_lease WHERE token = {token}");
        assert_eq!(db.count(&rows).await, 1, "{token}");
        assert!(tokens.insert(token) && token > FIRST + 105, "{token}");
    }
    // A take-over too.
    let mut rows = Table::new().list(&mut conn).await.unwrap();
    rows.sort_by_key(|row| row.token);
    let seen = rows[3].token;
    db.run(&format!(
        "SELECT setval('advisory_lease_token', {seen} - 1); UPDATE advisory_lease SET key_hash = sha256('seen') WHERE token = {seen}"
    ))
    .await;
    let lease = Table::new().take_over(&mut conn, key("seen"), seen).await;
    let token = lease.unwrap().unwrap().token().get();
    assert!(tokens.insert(token), "{token}");
}

/// After a failover all programs find the sequence behind at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_grants_move_the_sequence_together() {
    let db = Arc::new(database().await);
    db.run("ALTER SEQUENCE advisory_lease_token RESTART").await;
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let db = Arc::clone(&db);
        tasks.spawn(async move {
            let mut conn = db.connect().await;
            let text = format!("k{task}");
            [grant(&mut conn, &text).await, grant(&mut conn, &text).await]
        });
    }
    let granted = tasks.join_all().await;
    for [first, second] in &granted {
        assert!(FIRST < *first && first < second, "{first} {second}");
    }
    let tokens: HashSet<_> = granted.as_flattened().iter().collect();
    assert_eq!(tokens.len(), 32, "{granted:?}");
    let last = db
        .count("SELECT last_value FROM advisory_lease_token")
        .await;
    // Some were drawn in vain.
    assert!(last <= FIRST + 64, "{last}");
}

/// A role that may not ask for the timeline gets the numbers of the sequence.
#[tokio::test]
async fn without_a_timeline_the_sequence_alone_counts() {
    let db = database().await;
    let mut conn = db.connect().await;
    let worker = format!("lease_timeless_{}", std::process::id());
    let table = Table::new().named("timeless_lease").unwrap();
    table.set_up(&mut conn).await.unwrap();
    db.run(&format!(
        "CREATE ROLE {worker}; GRANT SELECT, INSERT, UPDATE, DELETE ON timeless_lease TO {worker}; \
         GRANT USAGE, UPDATE ON SEQUENCE timeless_lease_token TO {worker}; \
         REVOKE EXECUTE ON FUNCTION pg_catalog.pg_walfile_name(pg_lsn) FROM PUBLIC"
    ))
    .await;
    conn.batch_execute(&format!("SET ROLE {worker}"))
        .await
        .unwrap();
    for token in 1..=3 {
        let lease = table.acquire(&mut conn, key("k")).await.unwrap();
        assert_eq!(lease.token().get(), token);
        let taken = table.take_over(&mut conn, key("k"), lease.token()).await;
        assert!(taken.unwrap().is_some());
        db.run("DELETE FROM timeless_lease; SELECT setval('timeless_lease_token', pg_sequence_last_value('timeless_lease_token') - 1)")
            .await;
    }
    conn.batch_execute("RESET ROLE").await.unwrap();
    db.run(&format!("DROP OWNED BY {worker}; DROP ROLE {worker}"))
        .await;
}

#[tokio::test]
async fn a_server_without_a_timeline_is_no_reason_not_to_ask_another() {
    let (without, with) = (database().await, database().await);
    let worker = format!("lease_shard_{}", std::process::id());
    without
        .run(&format!(
            "CREATE ROLE {worker}; GRANT SELECT, INSERT, UPDATE, DELETE ON advisory_lease TO {worker}; \
             GRANT USAGE, UPDATE ON SEQUENCE advisory_lease_token TO {worker}; \
             ALTER SEQUENCE advisory_lease_token RESTART; \
             REVOKE EXECUTE ON FUNCTION pg_catalog.pg_walfile_name(pg_lsn) FROM PUBLIC"
        ))
        .await;
    let mut conn = without.connect().await;
    conn.batch_execute(&format!("SET ROLE {worker}"))
        .await
        .unwrap();
    assert!(grant(&mut conn, "k").await < FIRST);
    with.run("ALTER SEQUENCE advisory_lease_token RESTART")
        .await;
    assert!(grant(&mut with.connect().await, "k").await >= FIRST);
    conn.batch_execute("RESET ROLE").await.unwrap();
    without
        .run(&format!("DROP OWNED BY {worker}; DROP ROLE {worker}"))
        .await;
}

/// Only a server that does not tell its timeline is not asked any more.
#[tokio::test]
async fn another_error_is_reported_and_the_timeline_asked_for_again() {
    let db = database().await;
    let table = Table::new().named("refusing_lease").unwrap();
    table.set_up(&mut db.connect().await).await.unwrap();
    db.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON refusing_lease FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    let refused = |answer: Result<Lease, Error>| {
        let error = answer.unwrap_err();
        assert!(
            matches!(&error, Error::Database(source) if source.to_string() == "not today"),
            "{error:?}"
        );
    };
    let mut conn = db.connect().await;
    refused(table.acquire(&mut conn, key("k")).await);
    // A failed transaction tells nothing.
    conn.begin_test_transaction().await.unwrap();
    refused(table.acquire(&mut conn, key("k")).await);
    // Nor does a lost connection.
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.cut_before("SELECT CAST(CAST('x' OPERATOR");
    refused(table.acquire(&mut conn, key("k")).await);
    db.run("DROP TRIGGER refuse ON refusing_lease").await;
    let mut conn = db.connect().await;
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    assert!(lease.token().get() > FIRST);
}
