//! What locks are called: for sure where a number can be checked, else by what backends say.

use crate::bookings::{database, execute, key_of};
use crate::monitor::{backend, lock, look_with, waits};
use advisory_runtime::inventory::Site;
use advisory_runtime::lease::Table;
use advisory_runtime::monitor::{self, Certainty, Lock, Names, Scope};
use advisory_runtime::{LockKey, advisory_lock, session, xact};
use advisory_tests::{Database, pid_of};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

fn site(function: &str, written: &str, key: &str, scope: &str) -> Site {
    Site {
        kind: "fn".into(),
        written: vec![written.into()],
        keys: vec![key.into()],
        derivation: "sha256".into(),
        scope: scope.into(),
        mode: "exclusive".into(),
        module: "shop".into(),
        function: function.into(),
        krate: "shop".into(),
        ..Site::default()
    }
}

fn pattern(function: &str, pattern: &str) -> Site {
    site(function, pattern, &format!("pattern {pattern}"), "xact")
}

/// A program whose locks are known.
fn shop() -> Vec<Site> {
    let cleanup = Site {
        name: Some("cleanup".into()),
        ..site("clean_up", "42424242", "number 42424242", "session")
    };
    vec![
        cleanup,
        site("pair", "(7, 1)", "number (7,1)", "xact"),
        site("tenant", "(8, tenant)", "number (8,?)", "xact"),
        pattern("report", "nightly-report"),
        pattern("book", "booking:<tenant: int>:<day: date>"),
        pattern("anything", "free:<text: text>"),
        pattern(
            "bill",
            "invoice:<tenant: int>:<quarter_of_the_year_of_the_invoice: int>",
        ),
        site("mail", "mail:<id: int>", "pattern mail:<id: int>", "lease"),
        site("sweep", "sweep", "pattern sweep", "lease"),
    ]
}

fn names() -> Names {
    Names::of(shop()).unwrap()
}

/// What a lock is called, and how sure that is.
fn called(lock: &Lock) -> Vec<(Certainty, &str)> {
    let names = lock.names.iter();
    names.map(|name| (name.certainty, &*name.key)).collect()
}

async fn call_itself(conn: &mut AsyncPgConnection, name: &str) {
    execute(conn, &format!("SET application_name = '{name}'"))
        .await
        .unwrap();
}

async fn take(conn: &mut AsyncPgConnection, arguments: &str) {
    execute(conn, &format!("SELECT pg_advisory_lock({arguments})"))
        .await
        .unwrap();
}

fn number(text: &str) -> i64 {
    advisory_pattern::Derivation::Sha256.key(text)
}

#[tokio::test]
async fn fixed_numbers_and_constant_patterns_are_certain() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    // A wrong word does not matter to a number that is known.
    call_itself(&mut conn, "x [booking:<tenant: int>:<day: date>]").await;
    for arguments in ["42424242", "7, 1", "8, 5", "43"] {
        take(&mut conn, arguments).await;
    }
    take(&mut conn, &number("nightly-report").to_string()).await;
    let seen = look_with(&db, &names()).await;
    let certain = Certainty::Certain;
    let cleanup = lock(&seen, 42_424_242);
    assert_eq!(called(cleanup), [(certain, "42424242")]);
    assert_eq!(cleanup.names[0].name.as_deref(), Some("cleanup"));
    assert_eq!(cleanup.names[0].sites[0].function, "clean_up");
    assert_eq!(cleanup.holders[0].scope, Some(Scope::Session));
    assert_eq!(called(lock(&seen, (7, 1))), [(certain, "(7, 1)")]);
    assert_eq!(
        called(lock(&seen, (8, 5))),
        [(Certainty::Likely, "(8, tenant)")]
    );
    let report = lock(&seen, number("nightly-report"));
    assert_eq!(called(report), [(certain, "nightly-report")]);
    // The only one without a name of its own.
    assert_eq!(
        called(lock(&seen, 43)),
        [(Certainty::Likely, "booking:<tenant: int>:<day: date>")]
    );
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
async fn a_pattern_in_the_applications_name_is_likely_and_the_name_is_shown_apart() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    for (shown, name, key) in [
        (
            "booking-service [booking:<tenant: int>:<day: date>]",
            "booking-service",
            "booking:<tenant: int>:<day: date>",
        ),
        (
            "api [prod] [booking:<tenant: int>:<day: date>]",
            "api [prod]",
            "booking:<tenant: int>:<day: date>",
        ),
        // 63 bytes, and the server cuts there.
        (
            "shop [invoice:<tenant: int>:<quarter_of_the_year_of_the_invoice: int>]",
            "shop",
            "invoice:<tenant: int>:<quarter_of_the_year_of_the_invoice: int>",
        ),
        ("shop [somebody elses:<x>]", "shop", "somebody elses:<x>"),
        ("shop [free:<x>]", "shop", "free:<x>"),
    ] {
        call_itself(&mut conn, shown).await;
        take(&mut conn, "1001").await;
        let seen = look_with(&db, &names()).await;
        let lock = lock(&seen, 1001);
        assert_eq!(called(lock), [(Certainty::Likely, key)]);
        assert_eq!(backend(&seen, pid).application.name, name);
        let is_known = key.starts_with("booking:") || key.starts_with("invoice:");
        assert_eq!(lock.names[0].sites.len(), usize::from(is_known), "{key}");
    }
}

#[tokio::test]
async fn what_is_cut_and_can_be_two_patterns_is_shown_as_it_is() {
    let db = Database::create().await;
    let long = "a-key-whose-pattern-is-longer-than-what-the-server-keeps:<x: int>";
    let sites = [pattern("one", long), pattern("two", &format!("{long}:two"))];
    let names = Names::of(sites).unwrap();
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    call_itself(&mut conn, &format!("api [{long}]")).await;
    take(&mut conn, "5").await;
    let seen = look_with(&db, &names).await;
    let key = backend(&seen, pid).application.key.clone().unwrap();
    assert!(key.is_cut && long.starts_with(&key.text), "{key:?}");
    assert_eq!(lock(&seen, 5).names.len(), 2, "either of them");
}

#[tokio::test]
async fn a_rendered_key_is_certain_where_it_has_the_number_and_names_no_other() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let key = "booking:7:2025-01-15";
    call_itself(&mut conn, &format!("api [{key}]")).await;
    take(&mut conn, &number(key).to_string()).await;
    take(&mut conn, "99").await;
    let seen = look_with(&db, &names()).await;
    let named = lock(&seen, number(key));
    assert_eq!(called(named), [(Certainty::Certain, key)]);
    assert_eq!(named.names[0].sites[0].function, "book");
    assert_eq!(called(lock(&seen, 99)), []);
}

#[tokio::test]
async fn of_several_locks_of_one_backend_any_can_be_meant_but_one_that_is_awaited_is() {
    let db = Database::create().await;
    let (mut holder, mut other) = (db.connect().await, db.connect().await);
    let pid = pid_of(&mut holder).await;
    take(&mut other, "3").await;
    let said = "booking:<tenant: int>:<day: date>";
    call_itself(&mut holder, &format!("api [{said}]")).await;
    take(&mut holder, "1").await;
    take(&mut holder, "2").await;
    let seen = look_with(&db, &names()).await;
    for key in [1, 2] {
        assert_eq!(called(lock(&seen, key)), [(Certainty::OneOf, said)]);
        assert_eq!(lock(&seen, key).holders.len(), 1);
    }
    let waiting = waits(holder, "SELECT pg_advisory_lock(3)");
    db.until_waiting(3).await;
    let seen = look_with(&db, &names()).await;
    assert_eq!(called(lock(&seen, 3)), [(Certainty::Likely, said)]);
    assert_eq!(called(lock(&seen, 1)), [(Certainty::OneOf, said)]);
    assert_eq!(lock(&seen, 3).waiters[0].pid, pid);
    drop(other);
    drop(waiting.await.unwrap());
}

/// Nothing else of the tests' program has this number.
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
    drop(held);
    let held = xact::begin(&mut conn, key_of(7)).await.unwrap();
    assert_eq!(look_with(&db, &names).await.locks[0].names, []);
    drop(held);
}

#[tokio::test]
async fn leases_are_named_by_a_fixed_key_or_by_the_text_that_the_table_keeps() {
    let db = crate::lease::database().await;
    let mut conn = db.connect().await;
    let table = Table::new().held_by("worker-7").unwrap();
    let mut held = Vec::new();
    for (table, key) in [
        (table.clone(), "sweep"),
        (table.clone(), "mail:5"),
        (table.clone().with_text(), "mail:6"),
    ] {
        held.push(
            table
                .acquire(&mut conn, crate::lease::key(key))
                .await
                .unwrap(),
        );
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
