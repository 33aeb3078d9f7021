//! `#[advisory_lease]`: the generated code.

use advisory_runtime::lease::{Error, FencingToken, Leases, Table};
use advisory_runtime::{LockKey, advisory_lease};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{Pool, database, expire, finish};
use advisory_tests::{Database, assert_matches};
use diesel::QueryResult;
use diesel_async::pooled_connection::bb8;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Clone)]
struct Service {
    pool: Pool,
    calls: Arc<AtomicUsize>,
}

#[derive(LockKey)]
#[lock_key("leased-account:<id>")]
struct AccountLease {
    id: i64,
}

impl Service {
    fn new(db: &Database, size: usize) -> Self {
        Self {
            pool: db.deadpool(size),
            calls: Arc::default(),
        }
    }

    fn calls(&self) -> usize {
        AtomicUsize::load(&self.calls, Ordering::Relaxed)
    }

    #[advisory_lease(
        key = "webhook:<id>",
        pool = self.pool,
        ttl = "30s",
        keep = "24h",
        on_done = Ok(false)
    )]
    async fn handle(&self, id: &str, fails: bool) -> QueryResult<bool> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut conn = self
            .pool
            .get()
            .await
            .map_err(|error| diesel::result::Error::QueryBuilderError(Box::new(error)))?;
        diesel::sql_query("SELECT 1").execute(&mut conn).await?;
        if fails {
            return Err(diesel::NotFound);
        }
        Ok(true)
    }

    #[advisory_lease(key = "token:<id>", pool = &self.pool, handle = lease)]
    async fn token(&mut self, id: i64) -> Result<(FencingToken, bool), Error> {
        self.calls = Arc::default();
        Ok((lease.token(), lease.is_held()))
    }
}

#[advisory_lease(key = AccountLease { id }, pool = leases, wait = wait)]
async fn declared<P: advisory_runtime::lease::Store>(
    leases: &Leases<P>,
    id: i64,
    wait: Duration,
) -> anyhow::Result<i64> {
    Ok(id)
}

#[advisory_lease(key = 77, pool = pool, ttl = Duration::from_secs(60), renew = "20ms")]
async fn stays(
    pool: &bb8::Pool<AsyncPgConnection>,
    started: &tokio::sync::Notify,
) -> Result<(), Error> {
    started.notify_one();
    pending().await
}

#[tokio::test]
async fn a_webhook_that_is_delivered_twice_is_handled_once() {
    let db = database().await;
    let service = Service::new(&db, 1);
    assert!(service.handle("evt_1", false).await.unwrap());
    assert!(!service.handle("evt_1", false).await.unwrap());
    assert_eq!(service.calls(), 1);
    // A failed delivery can be tried again.
    service.handle("evt_2", true).await.unwrap_err();
    assert!(service.handle("evt_2", false).await.unwrap());
    // From any process, also at once.
    let both = (0..8).map(|_| {
        let service = service.clone();
        spawn(async move { service.handle("evt_3", false).await.unwrap() })
    });
    let mut handled = 0;
    for call in both.collect::<Vec<_>>() {
        handled += usize::from(call.await.unwrap());
    }
    assert_eq!(handled, 1);
}

#[tokio::test]
async fn the_body_has_the_token_and_the_key_is_free_afterwards() {
    let db = database().await;
    let mut service = Service::new(&db, 1);
    let mut last = None;
    for _ in 1..4 {
        let (token, is_held) = service.token(5).await.unwrap();
        assert!(is_held && Some(token) > last, "{token} behind {last:?}");
        last = Some(token);
    }
    assert_eq!(Leases::new(service.pool).list().await.unwrap(), []);
}

#[tokio::test]
async fn a_declared_lock_is_leased_by_its_text_in_the_given_table() {
    let db = database().await;
    let table = Table::new().named("app_lease").unwrap();
    table.set_up(&mut db.connect().await).await.unwrap();
    let leases = Leases::new(db.deadpool(1)).table(table);
    // The wait includes the time for the pool and for the first try.
    let long = Duration::from_secs(60);
    assert_eq!(declared(&leases, 3, long).await.unwrap(), 3);
    let held = leases.acquire(AccountLease { id: 3 }).await.unwrap();
    let short = Duration::from_millis(20);
    let error = declared(&leases, 3, short).await.unwrap_err();
    let error = Error::find(&*error).unwrap();
    assert!(matches!(*error, Error::Held { .. }), "{error:?}");
    assert!(error.to_string().contains("leased-account:<id>"), "{error}");
    assert_eq!(declared(&leases, 4, long).await.unwrap(), 4);
    finish(held).await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
    assert_eq!(db.count("SELECT count(*) FROM app_lease").await, 2);
}

#[tokio::test]
async fn a_lost_lease_drops_the_body_and_says_so() {
    let db = database().await;
    let pool = db.bb8(1).await;
    let started = tokio::sync::Notify::new();
    let (result, ()) = tokio::join!(stays(&pool, &started), async {
        started.notified().await;
        expire(&db).await;
    });
    assert_matches!(result, Err(Error::Lost { .. }));
    assert_eq!(Leases::new(pool).list().await.unwrap(), []);
}
