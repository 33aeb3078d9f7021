//! Names of locks from the comments in front of queries: likely, or one of several.

use advisory_runtime::monitor::{Activity, Certainty, HolderId, Names, keys_of};
use advisory_runtime::{Error, Key, LockKey, session};
use advisory_tests::lock_names::{BOOKING, called, names, pattern, take, take_as};
use advisory_tests::monitor::{backend, lock, look, look_with, waits};
use advisory_tests::statements::run;
use advisory_tests::{Database, pid_of};

/// The message of a locked call after its comment, and the key that it requests.
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
                run(&mut conn, "BEGIN").await;
            }
            let message = format!("/*advisory:{BOOKING}*/{separator}{statements}");
            run(&mut conn, &message).await;
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
    run(&mut holder, "SELECT 'the body'").await;
    let seen = look_with(&db, &names()).await;
    for key in [5, 6] {
        assert_eq!(called(lock(&seen, key)), [], "{key}");
    }
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
async fn who_waits_for_one_of_several_locks_names_the_others_too() {
    let db = Database::create().await;
    let mut holder = db.connect().await;
    take(&mut holder, "5), pg_advisory_lock(6").await;
    run(&mut holder, "SELECT 'the body'").await;
    let asked = "SELECT pg_catalog.pg_advisory_lock(5),pg_catalog.pg_advisory_lock(6)";
    let message = format!("/*advisory:{BOOKING}*/;{asked}");
    let waiting = waits(db.connect().await, message);
    db.until_waiting(5).await;
    let seen = look_with(&db, &names()).await;
    for key in [5, 6] {
        let named = lock(&seen, key);
        assert_eq!(called(named), [(Certainty::Likely, BOOKING)], "{key}");
    }
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
        run(&mut conn, message).await;
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
        held.finish(Ok::<_, Error>(())).await.unwrap();
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
    // A waiter for only one of them shows which one that is.
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

    // Only the text of this one is left, which waits after the truncated part.
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

#[test]
fn arguments_that_are_longer_than_any_key_are_not_read() {
    let call = |spaces: usize| format!("SELECT pg_advisory_lock({}7)", " ".repeat(spaces));
    assert_eq!(keys_of(&call(200)), [Key::BigInt(7)]);
    assert_eq!(keys_of(&call(300)), []);
    let open = "pg_advisory_lock(".repeat(3);
    assert_eq!(keys_of(&format!("{open}1")), []);
}
