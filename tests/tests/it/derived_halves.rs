//! Pairs whose second half is derived from a pattern, as others write them by hand:
//! `pg_advisory_xact_lock(23405, hashtext($1))`.

use advisory_runtime::inventory::{self, Site};
use advisory_runtime::monitor::{Certainty, Names};
use advisory_runtime::{
    Error, Holding, Key, LockKey, Request, Wait, advisory_lock, lock_key, xact,
};
use advisory_tests::bookings::{database, run};
use advisory_tests::monitor::{backend, lock, look_with};
use advisory_tests::{Database, LockedKey, assert_error, assert_matches, pid_of};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

const TEXTS: [&str; 5] = [
    "spring sale",
    "",
    "ä:%",
    "<b>",
    "日本語キー 🔒 a longer text",
];

/// The pair as computed by the server's own functions.
async fn deployed(db: &Database, text: &str) -> Key {
    let mut by_hand = db.connect().await;
    let sql = format!("SELECT pg_advisory_lock(23405, hashtext('{text}'))");
    run(&mut by_hand, &sql).await;
    let locks = db.locks().await;
    run(&mut by_hand, "SELECT pg_advisory_unlock_all()").await;
    let [key] = keys(&locks.iter().map(|lock| lock.key).collect::<Vec<_>>())[..] else {
        panic!("{locks:?}");
    };
    assert_matches!(key, Key::IntInt(23_405, _));
    key
}

fn keys(locks: &[LockedKey]) -> Vec<Key> {
    let keys = locks.iter().map(|lock| match *lock {
        LockedKey::Bigint(number) => Key::BigInt(number),
        LockedKey::Pair(first, second) => Key::IntInt(first, second),
    });
    let mut keys: Vec<Key> = keys.collect();
    keys.sort_unstable();
    keys
}

async fn held(db: &Database) -> Vec<Key> {
    let locks: Vec<LockedKey> = db.locks().await.iter().map(|lock| lock.key).collect();
    keys(&locks)
}

#[advisory_lock(key = (23_405, "<announcement|raw>"), derivation = "hashtext", name = "announcement")]
async fn announce(
    conn: &mut AsyncPgConnection,
    db: &Database,
    announcement: &str,
) -> QueryResult<Vec<Key>> {
    _ = conn;
    Ok(held(db).await)
}

#[derive(LockKey)]
#[lock_key((23_405, "<text|raw>"), derivation = "hashtext", name = "announcement")]
struct AnnouncementLock<'t> {
    text: &'t str,
}

#[tokio::test]
async fn every_way_to_write_it_locks_what_the_server_computes() {
    let db = database().await;
    for text in TEXTS {
        let expected = deployed(&db, text).await;
        let found = announce(&mut db.connect().await, &db, text).await.unwrap();
        assert_eq!(found, [expected], "{text}");
        let declared = AnnouncementLock { text };
        assert_eq!(declared.key(), expected);
        assert_eq!(declared.rendered(), format!("(23405,\"{text}\")"));
        let computed = lock_key!(
            (23_405, "<text|raw>"),
            derivation = "hashtext",
            name = "announcement"
        );
        assert_eq!(computed, expected);
    }
    // The text is a constant, so the macro computes its number.
    let constant = lock_key!(
        (23_405, "spring sale"),
        derivation = "hashtext",
        allow_overlap("announcement", "one of them")
    );
    assert_eq!(constant, deployed(&db, "spring sale").await);
    let negative = lock_key!(
        (-7, "derived half of a negative number"),
        derivation = "fnv1a32"
    );
    let half = advisory_pattern::Derivation::Fnv1a32.half("derived half of a negative number");
    assert_eq!(negative, Key::IntInt(-7, half));
}

#[tokio::test]
async fn a_call_waits_for_the_lock_that_was_taken_by_hand() {
    let db = database().await;
    let mut by_hand = db.connect().await;
    let sql = "SELECT pg_advisory_lock(23405, hashtext('a'))";
    run(&mut by_hand, sql).await;
    let request = Request::new(AnnouncementLock { text: "a" }).wait(Wait::Never);
    let mut conn = db.connect().await;
    let error = xact::begin(&mut conn, request).await.map(drop).unwrap_err();
    assert_error!(error, NotAvailable);
    assert!(
        error.to_string().contains("(23405,\"<text|raw>\")"),
        "{error}"
    );
    let mut conn = db.connect().await;
    let other = announce(&mut conn, &db, "b").await.unwrap();
    assert_eq!(other.len(), 2);
}

#[advisory_lock(keys = [(23_406, "<ids*>"), (23_406, "first"), "derived-halves:<room>"], derivation = "fnv1a32")]
async fn several(
    conn: &mut AsyncPgConnection,
    db: &Database,
    ids: &[i64],
    room: i64,
) -> Result<Vec<Key>, Error> {
    _ = conn;
    Ok(held(db).await)
}

#[tokio::test]
async fn they_are_taken_among_several_keys_and_for_each_element() {
    let db = database().await;
    let mut conn = db.connect().await;
    let found = several(&mut conn, &db, &[3, 1], 7).await.unwrap();
    let fnv = advisory_pattern::Derivation::Fnv1a32;
    let half = |text| Key::IntInt(23_406, fnv.half(text));
    let mut expected = vec![
        Key::BigInt(fnv.key("derived-halves:7")),
        half("1"),
        half("3"),
        half("first"),
    ];
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[advisory_lock(
    key = (23_407, "<room: int>"),
    derivation = "hashtext",
    permits = 2,
    wait = "never"
)]
async fn few(conn: &mut AsyncPgConnection, room: i64, db: &Database) -> Result<Vec<Key>, Error> {
    _ = conn;
    Ok(held(db).await)
}

#[tokio::test]
async fn its_permits_are_those_of_its_two_numbers() {
    let db = database().await;
    let half = advisory_pattern::Derivation::Hashtext.half("1");
    let second = advisory_pattern::permit_key(&format!("(23407, {half})"), 2);
    let permits = vec![Key::BigInt(second), Key::IntInt(23_407, half)];
    let mut conn = db.connect().await;
    let first = Request::new(Key::IntInt(23_407, half)).wait(Wait::Never);
    let guard = xact::begin(&mut conn, first).await.unwrap();
    // The first permit is taken, so the call gets the second one.
    let found = few(&mut db.connect().await, 1, &db).await.unwrap();
    assert_eq!(found, permits);
    drop(guard);
}

async fn needs_it(
    conn: &mut AsyncPgConnection,
    _: Holding<'_, AnnouncementLock<'_>>,
) -> QueryResult<i32> {
    pid_of(conn).await;
    Ok(1)
}

#[advisory_lock(key = AnnouncementLock { text }, handle = lock)]
async fn witness(conn: &mut AsyncPgConnection, text: &str) -> Result<i32, Error> {
    Ok(needs_it(conn, lock.holding()).await?)
}

#[tokio::test]
async fn a_declared_one_gives_a_witness() {
    let db = database().await;
    assert_eq!(witness(&mut db.connect().await, "w").await.unwrap(), 1);
}

fn site(key: &str, written: &str) -> Site {
    Site {
        kind: "fn".into(),
        written: vec![written.into()],
        keys: vec![key.into()],
        derivation: "hashtext".into(),
        scope: "xact".into(),
        function: "announce".into(),
        ..Site::default()
    }
}

#[tokio::test]
async fn the_live_view_names_it_by_its_numbers_and_by_its_comment() {
    let written = "(23405,\"<announcement: text>\")";
    let names = Names::of([
        site("half 23405 <announcement: text>", written),
        site("half 23408 job", "(23408,\"job\")"),
        site("half 23409 a:<x: text>", "(23409,\"a:<x>\")"),
        site("half 23409 b:<x: text>", "(23409,\"b:<x>\")"),
    ]);
    let names = names.unwrap();
    let db = database().await;
    let mut conn = db.connect().await;
    let half = |text| advisory_pattern::Derivation::Hashtext.half(text);
    let (constant, known, open) = (half("job"), half("a, b"), half("c"));
    for lock in [
        format!("SELECT pg_advisory_lock(23408, {constant})"),
        format!("SELECT pg_advisory_lock(23408, {open})"),
        format!("SELECT pg_advisory_lock(23405, {open})"),
    ] {
        run(&mut conn, &lock).await;
    }
    let mut other = db.connect().await;
    let pid = pid_of(&mut other).await;
    // The message of a call that shows its rendered key.
    let message = format!(
        "/*advisory:(23405,\"a, b\")*/;SELECT pg_catalog.pg_advisory_lock(23405,CAST({known} AS pg_catalog.int4))"
    );
    diesel_async::SimpleAsyncConnection::batch_execute(&mut other, &message)
        .await
        .unwrap();
    let of_two =
        format!("/*advisory:(23409,\"b:<x>\")*/;SELECT pg_catalog.pg_advisory_lock(23409,{open})");
    let mut third = db.connect().await;
    diesel_async::SimpleAsyncConnection::batch_execute(&mut third, &of_two)
        .await
        .unwrap();
    let seen = look_with(&db, &names).await;
    assert_eq!(
        names.of_lock(Key::IntInt(23_409, open), &of_two, None),
        lock(&seen, (23_409, open)).names
    );
    let called = |key: (i32, i32)| -> Vec<(Certainty, String)> {
        let names = lock(&seen, key).names.iter();
        names
            .map(|name| (name.certainty, name.key.clone()))
            .collect()
    };
    assert_eq!(
        called((23_408, constant)),
        [(Certainty::Certain, "(23408,\"job\")".to_owned())]
    );
    assert_eq!(called((23_408, open)), []);
    let of_two = (Certainty::Likely, "(23409,\"b:<x>\")".to_owned());
    assert_eq!(called((23_409, open)), [of_two]);
    assert_eq!(
        called((23_405, open)),
        [(Certainty::Likely, written.to_owned())]
    );
    assert_eq!(
        backend(&seen, pid).comment.as_ref().unwrap().text,
        "(23405,\"a, b\")"
    );
    // Its comment distinguishes it from other pairs with the same first half.
    let rendered = "(23405,\"a, b\")".to_owned();
    assert_eq!(called((23_405, known)), [(Certainty::Certain, rendered)]);
}

#[test]
fn the_inventory_has_it_as_it_is_compared() {
    let sites = inventory::sites().unwrap();
    let site = |function: &str| {
        let mut sites = sites.iter();
        let site =
            sites.find(|site| site.module.ends_with("derived_halves") && site.function == function);
        site.unwrap().clone()
    };
    let attribute = site("announce");
    assert_eq!(attribute.keys, ["half 23405 <announcement: raw>"]);
    assert_eq!(attribute.written, ["(23405,\"<announcement|raw>\")"]);
    assert_eq!(site("AnnouncementLock").keys, ["half 23405 <text: raw>"]);
    assert_eq!(site("several").keys[1], "half 23406 first");
}
