//! The names of locks: certain where a number can be checked, else by the comments in front of queries.

use crate::bookings::{database, execute, key_of};
use crate::monitor::{backend, lock, look, look_with, waits};
use advisory_runtime::inventory::Site;
use advisory_runtime::lease::Table;
use advisory_runtime::monitor::{self, Activity, Certainty, HolderId, Lock, Names, Scope};
use advisory_runtime::{Error, Key, LockKey, advisory_lock, session, xact};
use advisory_tests::{Database, pid_of};
use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

/// The pattern of the lock site `book`.
const BOOKING: &str = "booking:<tenant: int>:<day: date>";

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
        pattern("book", BOOKING),
        pattern("anything", "free:<text: text>"),
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

async fn take(conn: &mut AsyncPgConnection, arguments: &str) {
    execute(conn, &format!("SELECT pg_advisory_lock({arguments})"))
        .await
        .unwrap();
}

/// Sends a message as a locked call does: in the simple protocol.
async fn send(conn: &mut AsyncPgConnection, message: &str) {
    conn.batch_execute(message).await.unwrap();
}

/// A session-level lock with a comment.
async fn take_as(conn: &mut AsyncPgConnection, text: &str, arguments: &str) {
    let message = format!("/*advisory:{text}*/;SELECT pg_catalog.pg_advisory_lock({arguments})");
    send(conn, &message).await;
}

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
    // A wrong comment does not matter to a number that is known.
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

/// What a locked call sends behind its comment, and the key that it asks for.
const MESSAGES: [(&str, Key); 8] = [
    (
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;\
         SELECT pg_catalog.pg_advisory_xact_lock(-4814109257161839213);BEGIN",
        Key::BigInt(-4_814_109_257_161_839_213),
    ),
    (
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;\
         SELECT pg_catalog.pg_advisory_xact_lock_shared(1);BEGIN",
        Key::BigInt(1),
    ),
    (
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;\
         SELECT pg_catalog.pg_advisory_xact_lock(-7,CAST(-2147483648 AS pg_catalog.int4));BEGIN",
        Key::IntInt(-7, i32::MIN),
    ),
    (
        "SELECT pg_catalog.set_config('advisory.lock_timeout',pg_catalog.current_setting('lock_timeout'),true),\
         pg_catalog.set_config('lock_timeout','5000',true),pg_catalog.pg_advisory_xact_lock(2),\
         pg_catalog.set_config('lock_timeout',pg_catalog.current_setting('advisory.lock_timeout'),true);BEGIN",
        Key::BigInt(2),
    ),
    (
        "SAVEPOINT diesel_savepoint_1;SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\
         SELECT pg_catalog.pg_advisory_xact_lock(3)",
        Key::BigInt(3),
    ),
    (
        "SELECT pg_catalog.pg_try_advisory_xact_lock(4)",
        Key::BigInt(4),
    ),
    ("SELECT pg_catalog.pg_advisory_lock(5)", Key::BigInt(5)),
    (
        "SELECT pg_catalog.pg_try_advisory_lock_shared(6,7)",
        Key::IntInt(6, 7),
    ),
];

#[tokio::test]
async fn every_locked_calls_message_names_its_lock() {
    let db = Database::create().await;
    for (statements, key) in MESSAGES {
        for separator in ["", ";"] {
            let mut conn = db.connect().await;
            let pid = pid_of(&mut conn).await;
            if statements.starts_with("SAVEPOINT") || statements.contains("try") {
                send(&mut conn, "BEGIN").await;
            }
            let message = format!("/*advisory:{BOOKING}*/{separator}{statements}");
            send(&mut conn, &message).await;
            let seen = look_with(&db, &names()).await;
            let held = lock(&seen, key);
            assert_eq!(called(held), [(Certainty::Likely, BOOKING)], "{message}");
            assert_eq!(held.names[0].sites[0].function, "book");
            let comment = backend(&seen, pid).comment.clone().unwrap();
            assert_eq!((&*comment.text, comment.is_cut), (BOOKING, false));
            db.terminate(pid).await;
            db.until_no_locks().await;
        }
    }
}

#[tokio::test]
async fn a_holder_whose_body_runs_statements_is_named_by_its_waiters() {
    let db = Database::create().await;
    let mut holder = db.connect().await;
    let pid = pid_of(&mut holder).await;
    take_as(&mut holder, BOOKING, "5").await;
    take_as(&mut holder, "free:<x>", "6").await;
    let seen = look_with(&db, &names()).await;
    assert_eq!(called(lock(&seen, 5)), [], "only the last query is shown");
    assert_eq!(called(lock(&seen, 6)), [(Certainty::Likely, "free:<x>")]);
    execute(&mut holder, "SELECT 'the body'").await.unwrap();
    let seen = look_with(&db, &names()).await;
    assert_eq!(
        (called(lock(&seen, 5)), called(lock(&seen, 6))),
        (vec![], vec![])
    );
    assert_eq!(backend(&seen, pid).comment, None);

    let message = format!("/*advisory:{BOOKING}*/;SELECT pg_catalog.pg_advisory_lock(5)");
    let waiting = waits(db.connect().await, message);
    db.until_waiting(5).await;
    let seen = look_with(&db, &names()).await;
    let named = lock(&seen, 5);
    assert_eq!(called(named), [(Certainty::Likely, BOOKING)]);
    assert_eq!(named.holders[0].id, HolderId::Backend(pid));
    assert_eq!(called(lock(&seen, 6)), []);
    drop(holder);
    drop(waiting.await.unwrap());
}

#[tokio::test]
async fn a_comment_names_no_lock_that_its_query_does_not_ask_for() {
    let db = Database::create().await;
    db.run(
        "CREATE FUNCTION take(key bigint) RETURNS void LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_advisory_lock(key); END'",
    )
    .await;
    for message in [
        "/*advisory:a:<x>*/SELECT take(5)",
        "/*advisory:pg_advisory_lock(5)*/SELECT take(5)",
        "/*advisory:a:<x>*/SELECT pg_advisory_lock(6), take(5)",
        "SELECT pg_advisory_lock(5) /*advisory:a:<x>*/",
        "/*shop:a:<x>*/SELECT pg_advisory_lock(5)",
    ] {
        let mut conn = db.connect().await;
        send(&mut conn, message).await;
        let seen = look(&db).await;
        assert_eq!(called(lock(&seen, 5)), [], "{message}");
        db.terminate(pid_of(&mut conn).await).await;
        db.until_no_locks().await;
    }
}

/// A lock with any pattern.
struct Five(&'static str);

impl LockKey for Five {
    fn key(&self) -> Key {
        Key::BigInt(5)
    }
    fn pattern(&self) -> &'static str {
        self.0
    }
}

#[tokio::test]
async fn any_pattern_is_shown_in_printable_ascii_and_known_again() {
    let db = Database::create().await;
    let sites = ["café:<id: int>", "a/*b*/:<id: int>", "path/<id: int>/"];
    let names = Names::of(sites.map(|written| pattern("f", written))).unwrap();
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    let (exact, long) = ("x".repeat(200).leak(), "x".repeat(201).leak());
    for (pattern, text) in [
        (sites[0], "caf?:<id: int>"),
        (sites[1], "a/?b?/:<id: int>"),
        (sites[2], sites[2]),
        ("advisory:<x>, room:<ids*>", "advisory:<x>, room:<ids*>"),
        ("pg_advisory_lock(6)", "pg_advisory_lock(6)"),
        ("it's $1 -- \"%s\" \\", "it's $1 -- \"%s\" \\"),
        ("//**//", "//??//"),
        ("é\0\n😀\u{7f}", "?????"),
        (exact, exact),
        (long, &exact[..197]),
    ] {
        let held = session::acquire(&mut conn, Five(pattern)).await.unwrap();
        let seen = look_with(&db, &names).await;
        let comment = backend(&seen, pid).comment.clone().unwrap();
        assert_eq!((&*comment.text, comment.is_cut), (text, pattern == long));
        let found = &lock(&seen, 5).names[0];
        let is_known = sites.contains(&pattern);
        assert_eq!(found.certainty, Certainty::Likely, "{text}");
        assert_eq!(found.sites.len(), usize::from(is_known), "{text}");
        let key = if is_known { pattern } else { text };
        assert!(found.key.starts_with(key), "{found:?}");
        session::release(held, Ok::<_, Error>(())).await.unwrap();
    }
}

#[tokio::test]
async fn of_several_keys_each_name_is_possible_unless_they_have_one() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let calls = "1),pg_catalog.pg_advisory_lock(2";
    take_as(&mut conn, &format!("free:<x>, {BOOKING}"), calls).await;
    let both = [
        (Certainty::Possible, BOOKING),
        (Certainty::Possible, "free:<x>"),
    ];
    let seen = look_with(&db, &names()).await;
    assert_eq!(called(lock(&seen, 1)), both);
    assert_eq!(called(lock(&seen, 2)), both);
    // A waiter for one of them alone says which one that is.
    let message = format!("/*advisory:{BOOKING}*/;SELECT pg_catalog.pg_advisory_lock(2)");
    let waiting = waits(db.connect().await, message);
    db.until_waiting(2).await;
    let seen = look_with(&db, &names()).await;
    assert_eq!(called(lock(&seen, 1)), both);
    assert_eq!(called(lock(&seen, 2)), [(Certainty::Likely, BOOKING)]);
    drop(conn);
    drop(waiting.await.unwrap());
    db.until_no_locks().await;

    // The keys of a slice have one pattern.
    let mut conn = db.connect().await;
    take_as(&mut conn, BOOKING, calls).await;
    let seen = look_with(&db, &names()).await;
    for key in [1, 2] {
        assert_eq!(called(lock(&seen, key)), [(Certainty::Likely, BOOKING)]);
    }
}

#[tokio::test]
async fn a_rendered_key_is_certain_where_it_has_the_number_and_names_no_other() {
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

/// The server keeps the first 1,023 bytes.
#[tokio::test]
async fn a_query_that_is_cut_names_what_is_left_of_it() {
    let db = Database::create().await;
    let (mut holder, mut other) = (db.connect().await, db.connect().await);
    take(&mut other, "40").await;
    let calls: Vec<String> = (0..40).map(|key| key.to_string()).collect();
    let calls = calls.join("),pg_catalog.pg_advisory_lock(");
    take_as(&mut holder, BOOKING, &calls).await;
    let seen = look_with(&db, &names()).await;
    let holds = backend(&seen, pid_of(&mut holder).await);
    let Activity::Visible { query, .. } = &holds.activity else {
        panic!("{holds:?}");
    };
    assert_eq!(query.len(), 1023);
    assert_eq!(called(lock(&seen, 0)), [(Certainty::Likely, BOOKING)]);
    assert_eq!(called(lock(&seen, 39)), [(Certainty::Possible, BOOKING)]);
    assert_eq!(called(lock(&seen, 40)), []);

    // Nothing but the text is left of this one, which waits behind the cut.
    let padding = format!("pg_catalog.set_config('a.b','{}',true)", "x".repeat(1000));
    let message = format!("/*advisory:free:<x>*/;SELECT {padding},pg_catalog.pg_advisory_lock(40)");
    let waiting = waits(db.connect().await, message);
    db.until_waiting(40).await;
    let seen = look_with(&db, &names()).await;
    assert_eq!(called(lock(&seen, 40)), [(Certainty::Possible, "free:<x>")]);
    drop(other);
    drop(waiting.await.unwrap());
}

#[tokio::test]
async fn text_that_is_cut_and_can_be_two_patterns_has_both_names() {
    let db = Database::create().await;
    let long = "a-long-word:".repeat(20);
    let sites = [
        pattern("one", &format!("{long}<x: int>")),
        pattern("two", &format!("{long}<x: int>:two")),
    ];
    let names = Names::of(sites).unwrap();
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    take_as(&mut conn, &format!("{}...", &long[..197]), "5").await;
    let seen = look_with(&db, &names).await;
    let comment = backend(&seen, pid).comment.clone().unwrap();
    assert_eq!((&*comment.text, comment.is_cut), (&long[..197], true));
    assert_eq!(lock(&seen, 5).names.len(), 2, "either of them");
    let seen = look(&db).await;
    let shown = format!("{}…", &long[..197]);
    assert_eq!(called(lock(&seen, 5)), [(Certainty::Likely, &*shown)]);
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
    session::release(held, Ok::<_, Error>(())).await.unwrap();
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
