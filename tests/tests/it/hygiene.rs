//! The expansion takes no name from the user's function and adds no warning to it.
#![deny(warnings)]
#![forbid(unsafe_code)]

use advisory_runtime::advisory_lock;
use advisory_tests::bookings::{committed, database, execute};
use diesel::{PgConnection, QueryResult};
use diesel_async::AsyncPgConnection;
use std::sync::{Arc, Mutex};

/// Every local of the expansion, as a parameter.
#[advisory_lock(key = "names:<key>:<keys>:<held>:<result>", scope = "xact")]
#[expect(clippy::too_many_arguments, reason = "that is the test")]
async fn names(
    conn: &mut AsyncPgConnection,
    key: i64,
    keys: i64,
    held: i64,
    result: i64,
    returns: i64,
    convert: i64,
    place: i64,
    error: i64,
) -> QueryResult<i64> {
    execute(conn, "SELECT 1").await?;
    Ok(key + keys + held + result + returns + convert + place + error)
}

/// Coercion, `?` and `return` mean in the body what they mean without the attribute.
#[advisory_lock(key = "job", name = "job", scope = "xact")]
async fn coerces(
    conn: &mut AsyncPgConnection,
    which: u8,
) -> Result<Box<dyn std::fmt::Debug + Send>, Box<dyn std::error::Error + Send + Sync>> {
    execute(conn, "SELECT 1").await?;
    if which == 0 {
        return Ok(Box::new("a"));
    }
    let number: u8 = "7".parse()?;
    Ok(Box::new(number))
}

/// A lock in a function that never ends normally still compiles without a warning.
#[advisory_lock(key = "job", name = "job", scope = "xact")]
async fn fails(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    execute(conn, "SELECT 1").await?;
    Err(diesel::result::Error::NotFound)
}

#[tokio::test]
async fn names_coercions_and_returns_are_the_users_own() {
    let db = database().await;
    let conn = &mut db.connect().await;
    assert_eq!(names(conn, 1, 2, 3, 4, 5, 6, 7, 8).await.unwrap(), 36);
    assert_eq!(format!("{:?}", coerces(conn, 0).await.unwrap()), "\"a\"");
    assert_eq!(format!("{:?}", coerces(conn, 1).await.unwrap()), "7");
    fails(conn).await.unwrap_err();
    assert_eq!(committed(&db, 7).await, 0);
}

struct Observed {
    name: &'static str,
    observer: Arc<Mutex<PgConnection>>,
    seen: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

impl Drop for Observed {
    fn drop(&mut self) {
        let locks = diesel::dsl::sql::<diesel::sql_types::Bool>(
            "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND database = \
             (SELECT oid FROM pg_database WHERE datname = current_database()))",
        );
        let query = diesel::select(locks);
        let is_held = diesel::RunQueryDsl::get_result(query, &mut *self.observer.lock().unwrap());
        self.seen
            .lock()
            .unwrap()
            .push((self.name, is_held.unwrap()));
    }
}

impl Observed {
    fn read(&self) -> i64 {
        i64::try_from(self.name.len()).unwrap()
    }

    #[advisory_lock(key = "job", name = "job")]
    async fn receiver(self, conn: &mut AsyncPgConnection) -> QueryResult<i64> {
        execute(conn, "SELECT 1").await?;
        Ok(self.read())
    }
}

/// A guard of the caller, for example, protects what is committed.
#[advisory_lock(key = "job", name = "job", max_hold = "60s", err = |_| failed(&second))]
async fn reads(
    conn: &mut AsyncPgConnection,
    first: Observed,
    moved: Observed,
    second: Observed,
    (third, _fourth): (Observed, Observed),
) -> QueryResult<i64> {
    execute(conn, "SELECT 1").await?;
    let sum = first.read() + second.read() + third.read();
    drop(moved);
    execute(conn, "SELECT 1").await?;
    Ok(sum)
}

fn failed(_: &Observed) -> diesel::result::Error {
    diesel::result::Error::NotFound
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_are_dropped_after_the_commit() {
    let db = database().await;
    let conn = &mut db.connect().await;
    let (observer, seen) = (Arc::new(Mutex::new(db.establish())), Arc::default());
    let param = |name| Observed {
        name,
        observer: Arc::clone(&observer),
        seen: Arc::clone(&seen),
    };
    let patterns = (param("third"), param("fourth"));
    let call = reads(
        conn,
        param("first"),
        param("moved"),
        param("second"),
        patterns,
    );
    call.await.unwrap();
    let mut dropped = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(dropped.remove(0), ("moved", true));
    assert!(dropped.iter().all(|(_, is_held)| !is_held), "{dropped:?}");
    let order: Vec<_> = dropped.iter().map(|(name, _)| *name).collect();
    assert_eq!(order, ["third", "second", "first", "fourth"]);
    param("self").receiver(conn).await.unwrap();
    assert_eq!(seen.lock().unwrap()[..], [("self", false)]);
}
