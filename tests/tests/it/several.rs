//! Several keys in one call: sorted, without duplicates, in one round trip; and keys that are
//! numbers or declared as types.

use advisory_runtime::{Error, Key, LockKey, advisory_lock, lock_key, xact};
use advisory_tests::bookings::{database, execute, insert};
use advisory_tests::futures::spawn;
use advisory_tests::{Database, LockedKey, Proxy, assert_error};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, AsyncPgConnection};

fn key(rendered: &str) -> LockedKey {
    LockedKey::Bigint(advisory_pattern::Derivation::Sha256.key(rendered))
}

async fn locked(db: &Database) -> QueryResult<Vec<LockedKey>> {
    let mut keys: Vec<_> = db.locks().await.into_iter().map(|lock| lock.key).collect();
    keys.sort_unstable();
    Ok(keys)
}

fn sorted(mut keys: Vec<LockedKey>) -> Vec<LockedKey> {
    keys.sort_unstable();
    keys
}

#[derive(LockKey)]
#[lock_key("account:<id>", name = "account")]
struct AccountLock {
    id: i64,
}

#[derive(LockKey)]
#[lock_key("<tenant|trim|lower>:<name>", derivation = "md5")]
struct Named<'a, N: advisory_runtime::KeyPart> {
    tenant: &'a str,
    name: N,
}

struct Batch {
    ids: Vec<String>,
}

macro_rules! locked {
    ($($name:ident($($parameter:ident: $ty:ty),*) $arguments:tt)*) => { $(
        locked!(@ $name [$($parameter: $ty),*] $arguments);
    )* };
    (@ $name:ident [$($parameters:tt)*] ($($arguments:tt)*)) => {
        #[advisory_lock($($arguments)*)]
        async fn $name(conn: &mut AsyncPgConnection, db: &Database, $($parameters)*) -> QueryResult<Vec<LockedKey>> {
            _ = conn;
            locked(db).await
        }
    };
}

locked! {
    both(from: i64, to: i64) (keys = ["account:<from>", "account:<to>"], name = "account")
    declared(from: i64, to: i64) (keys = [AccountLock { id: from }, AccountLock { id: to }, "day:<day>"], with(day = from * 10))
    one_declared(id: i64) (key = AccountLock { id })
    each(ids: &[i64]) (key = "account:<ids*>", name = "account")
    each_declared(ids: &[i64]) (keys = ids.iter().map(|id| AccountLock { id: *id }), max_keys = 3)
    few(tenant: i64, batch: &Batch) (keys = ["batch-job", "batch:<tenant>:<batch.ids*|trim>"], max_keys = 3)
    fixed() (key = 42_424_242)
    large() (key = 9_000_000_000)
    pair(tenant_no: i32) (key = (7, tenant_no))
    computed(day: i64) (key = "week:<week>", with(week = day / 7), derivation = "hashtext")
}

#[tokio::test]
async fn as_many_declared_locks_are_taken_as_there_are() {
    let db = database().await;
    let conn = &mut db.connect().await;
    let two = sorted(vec![key("account:1"), key("account:2")]);
    assert_eq!(each_declared(conn, &db, &[2, 1, 2]).await.unwrap(), two);
    let none = each_declared(conn, &db, &[]).await.unwrap_err();
    assert_error!(none, NoKeys, "{none}");
    let many = each_declared(conn, &db, &[1, 2, 3, 4]).await.unwrap_err();
    assert!(
        matches!(Error::find(&many).as_deref(), Some(Error::TooManyKeys { lock, keys: 4, max: 3, .. }) if lock == "account:<id>"),
        "{many}"
    );
}

#[tokio::test]
async fn the_keys_are_those_of_the_patterns_each_once() {
    let db = database().await;
    let conn = &mut db.connect().await;
    let two = sorted(vec![key("account:1"), key("account:2")]);
    assert_eq!(both(conn, &db, 1, 2).await.unwrap(), two);
    assert_eq!(both(conn, &db, 2, 1).await.unwrap(), two);
    assert_eq!(both(conn, &db, 1, 1).await.unwrap(), [key("account:1")]);
    assert_eq!(
        declared(conn, &db, 1, 2).await.unwrap(),
        sorted(vec![key("account:1"), key("account:2"), key("day:10")])
    );
    assert_eq!(
        one_declared(conn, &db, 7).await.unwrap(),
        [key("account:7")]
    );
    assert_eq!(each(conn, &db, &[2, 1, 2]).await.unwrap(), two);
    let batch = Batch {
        ids: vec![" a".into(), "b".into(), "b ".into()],
    };
    assert_eq!(
        few(conn, &db, 3, &batch).await.unwrap(),
        sorted(vec![key("batch-job"), key("batch:3:a"), key("batch:3:b")])
    );
    assert_eq!(
        fixed(conn, &db).await.unwrap(),
        [LockedKey::Bigint(42_424_242)]
    );
    assert_eq!(
        large(conn, &db).await.unwrap(),
        [LockedKey::Bigint(9_000_000_000)]
    );
    assert_eq!(pair(conn, &db, -3).await.unwrap(), [LockedKey::Pair(7, -3)]);
    let hashed = advisory_pattern::Derivation::Hashtext.key("week:2");
    assert_eq!(
        computed(conn, &db, 15).await.unwrap(),
        [LockedKey::Bigint(hashed)]
    );
    db.until_quiet().await;
}

#[test]
fn a_declared_lock_needs_no_database() {
    let lock = Named {
        tenant: " ACME ",
        name: "a:b",
    };
    assert_eq!(lock.rendered(), "acme:a%3Ab");
    assert_eq!(lock.pattern(), "<tenant|trim|lower>:<name>");
    assert_eq!(
        lock.key(),
        Key::BigInt(advisory_pattern::Derivation::Md5.key("acme:a%3Ab"))
    );
    let account = AccountLock { id: 7 };
    assert_eq!(
        lock_key!("account:<account.id: int>", name = "account"),
        account.key()
    );
    assert_eq!(
        lock_key!("account:<n: int>", name = "account", with(n = 3 + 4)),
        account.key()
    );
    assert_eq!(
        lock_key!("md5-job", derivation = "md5"),
        Key::BigInt(advisory_pattern::Derivation::Md5.key("md5-job"))
    );
}

#[tokio::test]
async fn all_keys_are_taken_in_one_round_trip_and_each_is_named_once() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.reset();
    each(&mut conn, &db, &[5, 3, 9, 3, 5]).await.unwrap();
    assert_eq!(proxy.round_trips(), 2, "{:#?}", proxy.queries());
    let locks = |query: usize| {
        proxy.queries()[query]
            .matches("pg_advisory_xact_lock(")
            .count()
    };
    assert_eq!(locks(0), 3);
    both(&mut conn, &db, 4, 4).await.unwrap();
    assert_eq!(locks(2), 1);
}

#[tokio::test]
async fn an_empty_slice_and_too_many_keys_are_errors_before_any_sql() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let conn = &mut AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.reset();

    let error = each(conn, &db, &[]).await.unwrap_err();
    assert_error!(error, NoKeys { slice: "ids", .. });
    assert_eq!(
        error.to_string(),
        "advisory lock `account:<ids*>`: `ids` is empty, so there is nothing to lock; return before the call"
    );
    let many: Vec<i64> = (0..65).collect();
    assert_error!(each(conn, &db, &many).await, TooManyKeys { keys, max, .. } if [*keys, *max] == [65, 64]);
    let batch = Batch {
        ids: ["a", "b", "c"].map(str::to_owned).into(),
    };
    assert_error!(few(conn, &db, 3, &batch).await, TooManyKeys { keys, max, .. } if [*keys, *max] == [4, 3]);
    assert_eq!(proxy.round_trips(), 0, "{:#?}", proxy.queries());

    // Duplicates are one lock, so they are counted once.
    let twice: Vec<i64> = (0..64).chain(0..64).collect();
    assert_eq!(each(conn, &db, &twice).await.unwrap().len(), 64);
}

#[tokio::test]
async fn a_key_without_a_pattern_is_named_by_its_number() {
    let db = database().await;
    let mut conn = db.connect().await;
    #[advisory_lock(key = (9, 8))]
    async fn swallow(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        drop(execute(conn, "SELECT 1 FROM no_such_table").await);
        Ok(())
    }
    assert_error!(swallow(&mut conn).await, RolledBack { lock, .. } if lock == "(9, 8)");
    let held = xact::begin(&mut conn, AccountLock { id: 1 }).await.unwrap();
    assert_eq!(locked(&db).await.unwrap(), [key("account:1")]);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

/// Two calls that locked the same accounts in opposite orders would wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_in_opposite_directions_never_deadlock() {
    #[advisory_lock(keys = ["account:<from>", "account:<to>"], name = "account")]
    async fn transfer(conn: &mut AsyncPgConnection, from: i64, to: i64) -> QueryResult<()> {
        insert(conn, from, "out").await?;
        insert(conn, to, "in").await.map(drop)
    }
    let db = database().await;
    let pool = db.deadpool(16);
    let clients: Vec<_> = (0..16)
        .map(|client: i64| {
            let pool = pool.clone();
            spawn(async move {
                for round in 0..50 {
                    let (a, b) = ((client + round) % 3, (client + 2 * round + 1) % 3);
                    transfer(&mut pool.get().await.unwrap(), a, b).await?;
                }
                Ok::<_, DieselError>(())
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap().unwrap();
    }
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 16 * 50 * 2);
    db.until_quiet().await;
}

/// A statement's target list has at most 1,664 entries.
#[tokio::test]
async fn thousands_of_keys_are_taken_where_max_keys_allows_them() {
    #[advisory_lock(key = "many:<ids*>", max_keys = 3000)]
    async fn many(conn: &mut AsyncPgConnection, db: &Database, ids: &[i64]) -> QueryResult<usize> {
        _ = conn;
        Ok(locked(db).await?.len())
    }
    let db = database().await;
    let ids: Vec<i64> = (0..2500).collect();
    assert_eq!(
        many(&mut db.connect().await, &db, &ids).await.unwrap(),
        2500
    );
}
