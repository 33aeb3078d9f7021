//! Tokens of a key grow even if its table's sequence has been set back, or never got the rows'
//! values.

use advisory_runtime::lease::{Error, FencingToken, Leases, Table};
use advisory_tests::leases::{
    FIRST, Pool, Role, database, in_transaction, key, leases_at, once, orphan,
};
use advisory_tests::statements::run;
use advisory_tests::{Database, Proxy, assert_matches};
use diesel_async::SimpleAsyncConnection;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::task::JoinSet;

async fn start() -> (Database, Leases<Pool>) {
    let db = database().await;
    let leases = leases_at(db.url(), 1);
    (db, leases)
}

async fn grant(leases: &Leases<Pool>, text: &str) -> i64 {
    once(leases, key(text)).await.unwrap().get()
}

/// Rows that have expired, of these keys' texts and tokens above [`FIRST`], in SQL.
async fn insert(db: &Database, rows: &str) {
    db.run(&format!(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256(text::bytea), {FIRST} + token, 0, 'h', now(), now() FROM ({rows}) AS v (text, token)",
    ))
    .await;
}

/// Logical replication copies rows, but not the values of sequences.
#[tokio::test]
async fn rows_that_arrived_without_the_sequence_get_larger_tokens() {
    let (db, leases) = start().await;
    grant(&leases, "k").await;
    db.run("UPDATE advisory_lease SET token = token + 5000; ALTER SEQUENCE advisory_lease_token RESTART")
        .await;
    assert_eq!(grant(&leases, "k").await, FIRST + 5002);
    assert_eq!(grant(&leases, "other").await, FIRST + 5003);
    assert_eq!(grant(&leases, "k").await, FIRST + 5004);
    db.run("TRUNCATE advisory_lease RESTART IDENTITY").await;
    assert_eq!(grant(&leases, "k").await, FIRST + 5005);
}

/// An insertion removes expired rows, except those that show that the sequence is behind.
#[tokio::test]
async fn an_insertion_keeps_rows_that_the_sequence_has_not_reached() {
    let (db, leases) = start().await;
    insert(
        &db,
        "SELECT n::text, 10000 + n FROM generate_series(1, 20) AS n",
    )
    .await;
    for number in 0..20 {
        grant(&leases, &format!("new:{number}")).await;
    }
    let old = format!("SELECT count(*) FROM advisory_lease WHERE token > {FIRST} + 10000");
    assert_eq!(db.count(&old).await, 20);
    // The key of one of them.
    assert_eq!(grant(&leases, "7").await, FIRST + 10_021);
    assert_eq!(grant(&leases, "another").await, FIRST + 10_022);
    let mut conn = db.connect().await;
    Table::new().sweep(&mut conn).await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}

/// Otherwise nothing would show that a larger number was granted before.
#[tokio::test]
async fn a_sweep_keeps_rows_that_the_sequence_has_not_reached() {
    let (db, leases) = start().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    insert(&db, "VALUES ('a', 1), ('b', 2), ('c', 3)").await;
    db.run(&format!(
        "SELECT setval('advisory_lease_token', {FIRST} + 1)"
    ))
    .await;
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 1);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 2);
    assert_eq!(grant(&leases, "c").await, FIRST + 4);
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 2);
}

/// A role that may draw a number but not move the sequence is refused while it is behind, and
/// learns which right it lacks.
#[tokio::test]
async fn a_role_that_may_not_move_the_sequence_learns_what_to_grant() {
    let db = database().await;
    let role = Role::create(&db, "mover", "advisory_lease", "USAGE").await;
    let (leases, name) = (leases_at(&role.url, 1), &role.name);
    assert_eq!(grant(&leases, "k").await, FIRST + 1);
    db.run("UPDATE advisory_lease SET token = token + 69").await;
    let error = once(&leases, key("k")).await.unwrap_err();
    assert_matches!(error, Error::MissingRights { .. });
    let said = error.to_string();
    let statement = "GRANT USAGE, UPDATE ON SEQUENCE public.advisory_lease_token TO";
    assert!(said.contains(statement), "{said}");
    db.run(&format!("{statement} {name}")).await;
    assert_eq!(grant(&leases, "k").await, FIRST + 71);
    for right in ["SELECT", "DELETE", "UPDATE"] {
        db.run(&format!("REVOKE {right} ON advisory_lease FROM {name}"))
            .await;
        assert_matches!(
            once(&leases, key("k")).await,
            Err(Error::MissingRights { .. })
        );
    }
    role.drop(&db).await;
}

/// A number that the sequence cannot be moved to is not granted.
#[tokio::test]
async fn a_sequence_at_its_end_or_that_wraps_grants_nothing() {
    let (db, leases) = start().await;
    let last = FIRST + 3;
    db.run(&format!(
        "ALTER SEQUENCE advisory_lease_token MAXVALUE {last}"
    ))
    .await;
    for token in FIRST + 1..=last {
        assert_eq!(grant(&leases, "k").await, token);
    }
    for (setting, says) in [("NO CYCLE", "nextval"), ("CYCLE", "setval")] {
        db.run(&format!("ALTER SEQUENCE advisory_lease_token {setting}"))
            .await;
        for _ in 0..2 {
            let error = once(&leases, key("k")).await.unwrap_err();
            assert_matches!(error, Error::Database(_));
            let said = error.to_string();
            assert!(said.contains(says), "{said}");
        }
    }
    let held = "SELECT count(*) FROM advisory_lease WHERE expires_at > clock_timestamp()";
    assert_eq!(db.count(held).await, 0);
    let last = db.count("SELECT token FROM advisory_lease").await;
    db.run("ALTER SEQUENCE advisory_lease_token NO CYCLE NO MAXVALUE")
        .await;
    assert_eq!(grant(&leases, "k").await, last + 1);
}

/// It waits for writers of the table, for a limited time: renewals wait after it.
#[tokio::test]
async fn a_sequence_is_moved_after_open_writers_have_ended() {
    let (db, leases) = start().await;
    let mut writer = db.connect().await;
    for text in ["k", "other"] {
        grant(&leases, text).await;
    }
    db.run("SELECT setval('advisory_lease_token', 1)").await;
    run(
        &mut writer,
        "BEGIN; UPDATE advisory_lease SET holder = 'w' WHERE token = 1",
    )
    .await;
    assert_matches!(once(&leases, key("other")).await, Err(Error::Database(_)));
    writer.batch_execute("COMMIT").await.unwrap();
    let token = grant(&leases, "other").await;
    assert!(token > 3, "{token}");
    assert_eq!(grant(&leases, "new").await, token + 1);
}

/// A table of a program from before, and such a program beside a new one.
#[tokio::test]
async fn a_small_sequence_is_moved_to_the_timeline_once() {
    let (db, leases) = start().await;
    insert(&db, &format!("SELECT 'k', 70 - {FIRST}")).await;
    db.run("SELECT setval('advisory_lease_token', 70)").await;
    let token = grant(&leases, "k").await;
    assert_eq!(token, FIRST + 71);
    // What a program from before draws.
    let drawn = db.count("SELECT nextval('advisory_lease_token')").await;
    assert_eq!(drawn, token + 1);
    assert_eq!(grant(&leases, "other").await, drawn + 1);
}

/// `pg_upgrade` starts with timeline 1 again and keeps the sequence: a failover behind it must be
/// seen.
#[tokio::test]
async fn a_timeline_that_starts_again_moves_the_sequence_up() {
    let (db, leases) = start().await;
    let last = (5_i64 << 40) + 7;
    db.run(&format!("SELECT setval('advisory_lease_token', {last})"))
        .await;
    let token = grant(&leases, "k").await;
    assert_eq!(token, (4097_i64 << 40) + 8);
    assert_eq!(grant(&leases, "k").await, token + 1);
}

/// A grant whose connection is lost before the sequence is moved.
#[tokio::test]
async fn nothing_is_granted_before_the_sequence_is_in_the_timeline() {
    let (db, leases) = start().await;
    db.run("ALTER SEQUENCE advisory_lease_token RESTART").await;
    let proxy = Proxy::start(&db).await;
    for text in ["a", "b", "c"] {
        proxy.cut_before("LOCK TABLE");
        let refused = once(&leases_at(proxy.url(), 1), key(text)).await;
        refused.unwrap_err();
    }
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
    let first = grant(&leases, "d").await;
    assert!(first > FIRST, "{first}");
    assert_eq!(grant(&leases, "e").await, first + 1);
}

/// Storage that has both keys' effects in one place would take the writes of one for those of the
/// other.
#[tokio::test]
async fn two_keys_never_have_the_same_token() {
    let db = database().await;
    // The rows of a server whose sequence was not copied. Each has the token that is one more than
    // another's.
    insert(
        &db,
        "SELECT n::text, 100 + n FROM generate_series(1, 5) AS n",
    )
    .await;
    let mut tokens = HashSet::new();
    let (leases, mut held) = (leases_at(db.url(), 1), Vec::new());
    for number in 1..=5 {
        let granted = leases.acquire(key(&number.to_string())).await.unwrap();
        let token = granted.lease().token().get();
        held.push(granted);
        let rows = format!("SELECT count(*) FROM advisory_lease WHERE token = {token}");
        assert_eq!(db.count(&rows).await, 1, "{token}");
        assert!(tokens.insert(token) && token > FIRST + 105, "{token}");
    }
    // A take-over too.
    let seen: FencingToken = held[3].lease().token();
    db.run(&format!(
        "SELECT setval('advisory_lease_token', {seen} - 1); UPDATE advisory_lease SET key_hash = sha256('seen') WHERE token = {seen}"
    ))
    .await;
    let mut conn = db.connect().await;
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
        let leases = leases_at(db.url(), 1);
        tasks.spawn(async move {
            let text = format!("k{task}");
            [grant(&leases, &text).await, grant(&leases, &text).await]
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

/// A role that may not ask for the timeline gets the numbers of the sequence. It is no reason not
/// to ask another server.
#[tokio::test]
async fn without_a_timeline_the_sequence_alone_counts() {
    let (db, with) = (database().await, database().await);
    let table = Table::new().named("timeless_lease").unwrap();
    table.set_up(&mut db.connect().await).await.unwrap();
    let role = Role::create(&db, "timeless", "timeless_lease", "USAGE, UPDATE").await;
    db.run("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_walfile_name(pg_lsn) FROM PUBLIC")
        .await;
    let leases = leases_at(&role.url, 1).table(table.clone());
    for token in 1..=3 {
        assert_eq!(grant(&leases, "k").await, token);
        let taken = orphan(&role.url, &table, key("k")).await;
        assert_eq!(taken.token().get(), token + 2);
        db.run(&format!(
            "DELETE FROM timeless_lease; SELECT setval('timeless_lease_token', {token})"
        ))
        .await;
    }
    role.drop(&db).await;
    with.run("ALTER SEQUENCE advisory_lease_token RESTART")
        .await;
    assert!(grant(&leases_at(with.url(), 1), "k").await >= FIRST);
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
    let refused = async |leases: Leases<Pool>| {
        let error = once(&leases.table(table.clone()), key("k")).await;
        assert_matches!(error, Err(Error::Database(source)) if source.to_string() == "not today");
    };
    refused(leases_at(db.url(), 1)).await;
    // A failed transaction tells nothing.
    refused(Leases::new(in_transaction(db.url(), true))).await;
    // Nor does a lost connection.
    let proxy = Proxy::start(&db).await;
    proxy.cut_before("SELECT CAST(CAST('x' OPERATOR");
    refused(leases_at(proxy.url(), 1)).await;
    db.run("DROP TRIGGER refuse ON refusing_lease").await;
    let leases = leases_at(db.url(), 1).table(table);
    assert!(grant(&leases, "k").await > FIRST);
}
