//! The number that a call locks: the first eight bytes of the SHA-256 of the rendered key, and of
//! nothing else.

use advisory_runtime::{Key, LockKey, advisory_lock};
use advisory_tests::bookings::{database, run};
use advisory_tests::{Database, LockedKey};
use chrono::NaiveDate;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use uuid::Uuid;

async fn locked(db: &Database) -> QueryResult<i64> {
    match db.locks().await.as_slice() {
        [lock] => match lock.key {
            LockedKey::Bigint(key) => Ok(key),
            LockedKey::Pair(..) => panic!("not a bigint key: {lock:?}"),
        },
        locks => panic!("expected one lock: {locks:?}"),
    }
}

macro_rules! key {
    ($pattern:literal, ($($name:ident: $ty:ty = $value:expr),*) $rendered:expr) => {{
        #[advisory_lock(key = $pattern, scope = "xact")]
        async fn call(conn: &mut AsyncPgConnection, db: &Database, $($name: $ty),*) -> QueryResult<i64> {
            _ = conn;
            locked(db).await
        }
        let db = database().await;
        let key = call(&mut db.connect().await, &db, $($value),*).await.unwrap();
        assert_eq!(key, advisory_pattern::Derivation::Sha256.key($rendered), "{} as {}", $pattern, $rendered);
    }};
}

#[tokio::test]
async fn the_key_is_the_rendered_pattern() {
    let tenant = Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
    let day = |year, month, day| NaiveDate::from_ymd_opt(year, month, day).unwrap();
    key!("ka:job", () "ka:job");
    key!("kb:a<<b", () "kb:a<b");
    key!("kc:<tenant_id>:<date>", (tenant_id: Uuid = tenant, date: NaiveDate = day(2025, 1, 5)) "kc:67e55044-10b1-426f-9247-bb680e5fe0c8:2025-01-05");
    key!("kd:<date>", (date: NaiveDate = day(-44, 3, 15)) "kd:-0044-03-15");
    key!("ke:<date>", (date: NaiveDate = day(12_025, 1, 5)) "ke:+12025-01-05");
    key!("kf:n:<n>", (n: i64 = i64::MIN) "kf:n:-9223372036854775808");
    key!("kg:n:<n>", (n: u128 = u128::MAX) "kg:n:340282366920938463463374607431768211455");
    key!("kh:<on>:<c>", (on: bool = true, c: char = ':') "kh:true:%3A");
    key!("ki:<a>:<b>", (a: &str = "x:y%", b: String = "z".to_owned()) "ki:x%3Ay%25:z");
    key!("kj:<a|raw>", (a: &str = "x:y%") "kj:x:y%");
    key!("kr:<a: raw>", (a: &str = "x:y%") "kr:x:y%");
    key!("ks:<a: raw|lower>", (a: &str = "X:y%") "ks:x:y%");
    key!("kk:<email|trim|lower>", (email: &str = "  User@Example.com ") "kk:user@example.com");
    key!("kl:<email|trim>", (email: &str = "  a  b  ") "kl:a  b");
    key!("km:<a|display>", (a: std::net::Ipv4Addr = std::net::Ipv4Addr::LOCALHOST) "km:127.0.0.1");
    key!("kn:<r.0>:<r.1>", (r: (i64, Box<str>) = (7, "x".into())) "kn:7:x");
}

#[tokio::test]
async fn two_argument_lists_share_a_key_only_if_they_are_equal() {
    #[advisory_lock(key = "pair:<a>:<b>", scope = "xact")]
    async fn call(
        conn: &mut AsyncPgConnection,
        db: &Database,
        a: &str,
        b: &str,
    ) -> QueryResult<i64> {
        _ = conn;
        locked(db).await
    }
    let db = database().await;
    let conn = &mut db.connect().await;
    let parts = [
        "", ":", "%", "%3A", "a", "a:", ":a", "a:b", "b", "%25", "a%3Ab",
    ];
    let mut keys = std::collections::HashMap::new();
    for a in parts {
        for b in parts {
            let key = call(conn, &db, a, b).await.unwrap();
            if let Some(other) = keys.insert(key, (a, b)) {
                panic!("{other:?} and {:?} are one key", (a, b));
            }
        }
    }
}

/// What another program puts between two parts.
const END: &str = "\0";

/// A constant, and a value that is computed from a field.
#[derive(LockKey)]
#[lock_key(
    "task:<app|raw><end|raw><task|raw>:<length>",
    with(end = END, length = self.task.len()),
    allow_ambiguous = "no name of an app contains a NUL"
)]
struct TaskLock<'t> {
    app: &'t str,
    task: &'t str,
}

#[tokio::test]
async fn a_declared_key_can_have_constants_a_nul_and_computed_values() {
    let deployed = advisory_pattern::Derivation::Sha256.key("task:shop\0a:b:3");
    let lock = TaskLock {
        app: "shop",
        task: "a:b",
    };
    assert_eq!(lock.rendered(), "task:shop\0a:b:3");
    assert_eq!(lock.key(), Key::BigInt(deployed));
    // The server computes the same number of the same bytes; its texts have no NUL.
    let db = database().await;
    let mut conn = db.connect().await;
    let bytes = "convert_to('task:shop', 'UTF8') || '\\x00' || convert_to('a:b:3', 'UTF8')";
    let number = format!("('x' || left(encode(sha256({bytes}), 'hex'), 16))::bit(64)::bigint");
    run(&mut conn, &format!("SELECT pg_advisory_lock({number})")).await;
    assert_eq!(locked(&db).await.unwrap(), deployed);
}
