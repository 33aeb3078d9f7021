//! `verify` detects whether each client has its own server session; behind a pooler in transaction
//! mode it does not.

use advisory_runtime::{Error, Pool, PoolError, blocking, session};
use advisory_tests::bookings::database;
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::poolers::{bouncer, connect};
use advisory_tests::{Database, assert_error};
use diesel::{Connection as _, PgConnection};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// The results for pools of two connections, and two plain blocking ones, at an address. Twice,
/// since a pooler with more backends assigns another one each time.
async fn verify(url: &str) -> Vec<Result<(), Error>> {
    let mut said = Vec::new();
    for _ in 0..2 {
        let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
        let pool = bb8::Pool::builder()
            .max_size(2)
            .build(manager)
            .await
            .unwrap();
        said.push(verified(&pool).await);
        drop(pool);
        let pool = Database::deadpool_at(url, 2);
        said.push(verified(&pool).await);
        drop(pool);
        said.push(verify_blocking(url).await);
    }
    said
}

/// Repeated if no connection can be set up, for the reason that [`connect`] gives.
async fn verified<P: Pool>(pool: &P) -> Result<(), Error> {
    for _ in 0..100 {
        match session::verify(pool).await {
            Err(Error::Pool(_)) => {}
            said => return said,
        }
    }
    session::verify(pool).await
}

async fn verify_blocking(url: &str) -> Result<(), Error> {
    let pool = Direct(url.to_owned());
    let verified = spawn_blocking(move || blocking::session::verify(&pool));
    verified.await.unwrap()
}

/// Opens a connection for each call. Unlike r2d2, it runs no prepared statement of its own, which
/// fails on another backend.
struct Direct(String);

impl blocking::Pool for Direct {
    type Connection = PgConnection;

    fn connection(&self) -> Result<PgConnection, PoolError> {
        PgConnection::establish(&self.0).map_err(PoolError::new)
    }
}

#[tokio::test]
async fn verify_passes_without_a_pooler_and_keeps_the_connections() {
    let db = database().await;
    for said in verify(db.url()).await {
        said.unwrap();
    }
    db.until_quiet().await;
    let pool = db.deadpool(2);
    for _ in 0..3 {
        session::verify(&pool).await.unwrap();
    }
    assert_eq!(pool.status().size, 2, "a connection was thrown away");
    let held = session::acquire(&mut pool.get().await.unwrap(), 7)
        .await
        .map(drop);
    held.unwrap();
    db.until_quiet().await;
}

#[tokio::test]
async fn verify_needs_two_connections_at_once() {
    let db = database().await;
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(db.url());
    let pool = bb8::Pool::builder()
        .max_size(1)
        // Long enough for the one that exists, on a slow machine too; waited in full for the one
        // that does not.
        .connection_timeout(Duration::from_secs(3))
        .build(manager)
        .await
        .unwrap();
    says_that_two_are_needed(session::verify(&pool).await);
    pool.get().await.unwrap();
}

/// A deadpool pool has no limit of its own for that wait.
#[tokio::test]
async fn verify_ends_with_a_pool_of_one_that_waits_forever() {
    let db = database().await;
    let pool = db.deadpool(1);
    let verified = timeout(Duration::from_secs(60), session::verify(&pool)).await;
    says_that_two_are_needed(verified.expect("an end"));
    // The existing one is undamaged, and in the pool again.
    let held = session::acquire(&mut pool.get().await.unwrap(), 7)
        .await
        .map(drop);
    held.unwrap();
    let taken = pool.get().await.unwrap();
    let verified = timeout(Duration::from_secs(60), session::verify(&pool)).await;
    assert_error!(verified.expect("an end"), Pool);
    drop(taken);
    db.until_quiet().await;
}

fn says_that_two_are_needed(verified: Result<(), Error>) {
    let error = verified.unwrap_err();
    assert_error!(error, Pool);
    assert!(error.to_string().contains("two connections"), "{error}");
}

#[tokio::test]
async fn verify_finds_a_pooler_in_transaction_mode() {
    let db = database().await;
    for size in 1..=3 {
        for order in ["", "server_round_robin = 1"] {
            // With backends that exist before they are needed, too.
            for ready in ["", "min_pool_size = 3"] {
                let settings = format!(
                    "pool_mode = transaction\ndefault_pool_size = {size}\n{order}\n{ready}"
                );
                let Some(bouncer) = bouncer(&db, &settings).await else {
                    return;
                };
                let url = bouncer.url(&db);
                let mut said = vec![verify_blocking(&url).await, verify_blocking(&url).await];
                if order.is_empty() {
                    // Otherwise even the connection's set-up fails: its prepared statements are on
                    // another backend.
                    said.extend(verify(&url).await);
                }
                for said in said {
                    let error = said.expect_err(&settings);
                    assert_error!(error, PooledSession, "{settings}");
                    // The error does not advise what was just called, and names no key that nobody
                    // wrote.
                    let text = error.to_string();
                    assert!(
                        !text.contains("verify") && !text.contains("lock `"),
                        "{text}"
                    );
                }
                db.until_no_locks().await;
            }
        }
    }
}

/// Other programs on the pooler change the assignment of backends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_finds_a_pooler_in_transaction_mode_that_is_busy() {
    let db = database().await;
    for order in ["", "server_round_robin = 1"] {
        let settings = format!("pool_mode = transaction\ndefault_pool_size = 5\n{order}");
        let Some(bouncer) = bouncer(&db, &settings).await else {
            return;
        };
        let url = bouncer.url(&db);
        let (stop, _) = watch::channel(());
        let mut others = Vec::new();
        for conn in connect(&url, 4).await {
            others.push(spawn(keep_busy(conn, stop.subscribe())));
        }
        for _ in 0..30 {
            let error = verify_blocking(&url).await.expect_err(&settings);
            assert_error!(error, PooledSession, "{settings}");
        }
        stop.send(()).unwrap();
        for other in others {
            other.await.unwrap();
        }
        db.until_no_locks().await;
    }
}

async fn keep_busy(mut conn: AsyncPgConnection, stop: watch::Receiver<()>) {
    while !stop.has_changed().unwrap() {
        conn.batch_execute("SELECT pg_sleep(0.001)").await.unwrap();
    }
}

#[tokio::test]
async fn verify_passes_a_pooler_in_session_mode() {
    let db = database().await;
    for size in 2..=3 {
        for order in ["", "server_round_robin = 1"] {
            let settings = format!("pool_mode = session\ndefault_pool_size = {size}\n{order}");
            let Some(bouncer) = bouncer(&db, &settings).await else {
                return;
            };
            for said in verify(&bouncer.url(&db)).await {
                said.expect(&settings);
            }
            db.until_no_locks().await;
        }
    }
}
