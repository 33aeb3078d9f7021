//! Names of locks that are certain, because the number can be checked. `monitor_comments` tests the
//! others.

use advisory_runtime::lease::Table;
use advisory_runtime::monitor::{self, Certainty, Names, Scope};
use advisory_runtime::{Error, LockKey, advisory_lock, session, xact};
use advisory_tests::Database;
use advisory_tests::bookings::{database, execute, key_of};
use advisory_tests::leases;
use advisory_tests::lock_names::{BOOKING, called, names, take, take_as};
use advisory_tests::monitor::{lock, look_with};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

fn number(text: &str) -> i64 {
    advisory_pattern::Derivation::Sha256.key(text)
}

#[tokio::test]
async fn fixed_numbers_and_constant_patterns_are_certain() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    for arguments in ["7, 1", "8, 5", "43"] {
        take(&mut conn, arguments).await;
    }
    take(&mut conn, &number("nightly-report").to_string()).await;
    // A wrong comment does not affect a known number.
    take_as(&mut conn, BOOKING, "42424242").await;
    let seen = look_with(&db, &names()).await;
    let certain = Certainty::Certain;
    let cleanup = lock(&seen, 42_424_242);
    assert_eq!(called(cleanup), [(certain, "42424242")]);
    assert_eq!(cleanup.names[0].name.as_deref(), Some("cleanup"));
    assert_eq!(cleanup.names[0].sites[0].function, "clean_up");
    assert_eq!(cleanup.holders[0].scope, Some(Scope::Session));
    assert_eq!(called(lock(&seen, (7, 1))), [(certain, "(7, 1)")]);
    let half = called(lock(&seen, (8, 5)));
    assert_eq!(half, [(Certainty::Likely, "(8, tenant)")]);
    let report = lock(&seen, number("nightly-report"));
    assert_eq!(called(report), [(certain, "nightly-report")]);
    assert_eq!(called(lock(&seen, 43)), []);
}

#[tokio::test]
async fn a_lease_gives_no_advisory_lock_its_name() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    take(&mut conn, &number("sweep").to_string()).await;
    let seen = look_with(&db, &names()).await;
    assert_eq!(called(&seen.locks[0]), []);
}

#[tokio::test]
async fn a_rendered_key_is_certain_for_its_own_number_only() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let keys = ["booking:7:2025-01-15", "free:a"];
    let [first, second] = keys.map(number);
    let calls =
        format!("{first}),pg_catalog.pg_advisory_lock({second}),pg_catalog.pg_advisory_lock(99");
    take_as(&mut conn, &keys.join(", "), &calls).await;
    let seen = look_with(&db, &names()).await;
    for (key, function) in keys.into_iter().zip(["book", "anything"]) {
        let named = lock(&seen, number(key));
        assert_eq!(called(named), [(Certainty::Certain, key)]);
        let mut functions = named.names[0].sites.iter().map(|site| &*site.function);
        assert!(functions.any(|named| named == function), "{named:?}");
    }
    assert_eq!(called(lock(&seen, 99)), []);
}

/// No other lock in the tests has this number.
#[advisory_lock(key = 7_316_504_281, name = "monitored-number", scope = "session")]
async fn monitored(conn: &mut AsyncPgConnection, db: &Database) -> QueryResult<()> {
    let seen = look_with(db, &Names::of_program().unwrap()).await;
    let lock = lock(&seen, 7_316_504_281);
    assert_eq!(lock.names[0].name.as_deref(), Some("monitored-number"));
    assert_eq!(lock.names[0].certainty, Certainty::Certain);
    assert!(lock.names[0].sites[0].file.ends_with("monitor_names.rs"));
    execute(conn, "SELECT 1").await.map(|_| ())
}

#[derive(LockKey)]
#[lock_key("monitored-account:<id>")]
struct Account {
    id: i64,
}

#[tokio::test]
async fn the_running_program_names_its_own_locks_and_keys() {
    let db = database().await;
    let mut conn = db.connect().await;
    monitored(&mut conn, &db).await.unwrap();
    let held = session::acquire(&mut conn, Account { id: 7 }.key())
        .await
        .unwrap();
    let names = Names::of_program().unwrap().with_key(Account { id: 7 });
    let seen = look_with(&db, &names).await;
    let account = lock(&seen, Account { id: 7 }.key());
    assert_eq!(
        called(account),
        [(Certainty::Certain, "monitored-account:7")]
    );
    assert_eq!(account.names[0].sites[0].function, "Account");
    held.finish(Ok::<_, Error>(())).await.unwrap();
    let held = xact::begin(&mut conn, key_of(7)).await.unwrap();
    assert_eq!(look_with(&db, &names).await.locks[0].names, []);
    drop(held);
}

#[tokio::test]
async fn leases_are_named_by_a_fixed_key_or_by_the_tables_text() {
    let db = leases::database().await;
    let mut conn = db.connect().await;
    let table = Table::new().held_by("worker-7").unwrap();
    let mut held = Vec::new();
    for (table, key) in [
        (table.clone(), "sweep"),
        (table.clone(), "mail:5"),
        (table.clone().with_text(), "mail:6"),
    ] {
        held.push(leases::orphan(db.url(), &table, leases::key(key)).await);
    }
    let leases = monitor::leases(&mut conn, &table, &names()).await.unwrap();
    let (mut blocking, twin) = (db.establish(), names());
    let seen = advisory_runtime::blocking::monitor::leases(&mut blocking, &table, &twin).unwrap();
    let tokens = |leases: &[monitor::Lease]| -> Vec<_> {
        leases
            .iter()
            .map(|lease| (lease.row.key_hash, lease.names.clone()))
            .collect()
    };
    assert_eq!(tokens(&seen), tokens(&leases));
    let mut found: Vec<(Option<&str>, Vec<&str>)> = leases
        .iter()
        .map(|lease| {
            assert_eq!(lease.row.holder, "worker-7");
            let names = lease.names.iter().map(|name| &*name.key).collect();
            (lease.row.key.as_deref(), names)
        })
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            (None, vec![]),
            (None, vec!["sweep"]),
            (Some("mail:6"), vec!["mail:<id: int>"])
        ]
    );
}
