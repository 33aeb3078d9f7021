//! Leases behind a pooler in transaction mode, in full, while each message goes to another backend.
//!
//! pgbouncer 1.18 does not track prepared statements, so what is no lease here has none.

use crate::lease::{database, expire, key};
use advisory_runtime::Error;
use advisory_runtime::lease::{Leases, Request, Table};
use advisory_tests::{Bouncer, Database, left_out};
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

const TTL: Duration = Duration::from_secs(60);
const SETTINGS: &str = "pool_mode = transaction\ndefault_pool_size = 3\nadmin_users = postgres";

/// A pool of connections that are all there, and the pooler that moves them about.
struct Behind {
    db: Arc<Database>,
    pool: Pool<AsyncPgConnection>,
    _bouncer: Bouncer,
}

/// What sets a connection up is diesel-async's, in prepared statements, which can be on another backend than asked: again and
/// again. So the backends take turns from then on only.
async fn behind(db: Database, size: usize) -> Option<Behind> {
    let bouncer = match Bouncer::start(&db, SETTINGS).await {
        Ok(bouncer) => bouncer,
        Err(why) => {
            left_out("pgbouncer", why);
            return None;
        }
    };
    let url = bouncer.url(&db);
    let mut config = ManagerConfig::default();
    config.recycling_method = RecyclingMethod::Fast;
    let manager = AsyncDieselConnectionManager::new_with_config(&url, config);
    let pool = Pool::builder(manager).max_size(size).build().unwrap();
    let mut lent: Vec<Object<AsyncPgConnection>> = Vec::new();
    for _ in 0..100 * size {
        if lent.len() < size {
            lent.extend(pool.get().await.ok());
        }
    }
    assert_eq!(lent.len(), size, "no connections to {url}");
    let (console, _) = url.rsplit_once('/').unwrap();
    let (client, connection) = tokio_postgres::connect(&format!("{console}/pgbouncer"), NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    client
        .simple_query("SET server_round_robin = 1")
        .await
        .unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    // Who has a transaction open has a backend for itself: with three at once, all are there.
    for message in ["BEGIN", "COMMIT"] {
        for conn in lent.iter_mut().take(3) {
            conn.batch_execute(message).await.unwrap();
        }
    }
    let db = Arc::new(db);
    Some(Behind {
        db,
        pool,
        _bouncer: bouncer,
    })
}

#[tokio::test]
async fn a_connection_behind_a_pooler_does_all_that_another_does() {
    let Some(behind) = behind(database().await, 4).await else {
        return;
    };
    let (mut a, mut b) = (
        behind.pool.get().await.unwrap(),
        behind.pool.get().await.unwrap(),
    );
    let table = Table::new().with_text().held_by("a's, o'clock. é").unwrap();
    for round in 0..6 {
        let request = Request::text("k'é, 1.5").wait(advisory_runtime::Wait::Never);
        let lease = table.acquire(&mut a, request.clone()).await.unwrap();
        let error = table.acquire(&mut b, request.clone()).await.unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        assert!(table.renew(&mut b, &lease, TTL * 2).await.unwrap());
        assert!(table.holds(&mut b, &lease).await.unwrap());
        let row = table.find_text(&mut a, "k'é, 1.5").await.unwrap().unwrap();
        assert_eq!(row.key.as_deref(), Some("k'é, 1.5"));
        assert_eq!(row.holder, "a's, o'clock. é");
        assert!(row.remaining > TTL, "{row:?}");
        let other = table.acquire(&mut b, key("other")).await.unwrap();
        assert_eq!(table.list(&mut a).await.unwrap().len(), 2);
        let listed = table.list_of(&mut b, "a's, o'clock. é").await.unwrap();
        assert_eq!(listed.len(), 2);
        assert!(table.release(&mut b, &other).await.unwrap());
        if round % 2 == 0 {
            assert!(table.release(&mut b, &lease).await.unwrap());
            assert!(!table.release(&mut a, &lease).await.unwrap());
        } else {
            assert!(table.keep(&mut b, &lease, TTL).await.unwrap());
            assert!(!table.release(&mut a, &lease).await.unwrap());
            let error = table.acquire(&mut a, request).await.unwrap_err();
            assert!(error.is_busy(), "{error:?}");
            expire(&behind.db).await;
        }
    }
    let used = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND query LIKE '%advisory_lease%' AND pid <> pg_backend_pid()";
    assert_eq!(behind.db.count(used).await, 3, "backends");
    behind.db.until_quiet().await;
}

#[tokio::test]
async fn a_write_behind_a_pooler_is_fenced() {
    let db = database().await;
    db.run("CREATE TABLE written (token int8)").await;
    let Some(behind) = behind(db, 4).await else {
        return;
    };
    let (mut a, mut b) = (
        behind.pool.get().await.unwrap(),
        behind.pool.get().await.unwrap(),
    );
    let table = Table::new();
    let old = table.acquire(&mut a, key("k")).await.unwrap();
    let written = a.transaction(async |a| {
        old.fence(a).await?;
        // The server ends it when it stops, and others are refused meanwhile.
        a.batch_execute(
            "SELECT CAST(CASE WHEN setting::int8 BETWEEN 1 AND 60000 THEN '1' ELSE 'no bound' END AS int) \
             FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'; INSERT INTO written VALUES (1)",
        )
        .await
        .map_err(Error::Database)?;
        expire(&behind.db).await;
        let error = table.acquire(&mut b, key("k")).await.unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        Ok::<_, Error>(())
    });
    written.await.unwrap();
    let new = table.acquire(&mut b, key("k")).await.unwrap();
    for _ in 0..6 {
        let refused = a.transaction(async |a| {
            let error = old.fence(a).await.unwrap_err();
            assert!(matches!(error, Error::LockLost { .. }), "{error:?}");
            Err::<(), _>(error)
        });
        let error = refused.await.unwrap_err();
        assert!(matches!(error, Error::LockLost { .. }), "{error:?}");
        let fenced = b.transaction(async |b| new.fence(b).await);
        fenced.await.unwrap();
    }
    assert_eq!(behind.db.count("SELECT sum(token) FROM written").await, 1);
    behind.db.until_quiet().await;
}

#[tokio::test]
async fn an_open_transaction_behind_a_pooler_goes_on_after_what_is_asked_in_it() {
    let db = database().await;
    db.run("CREATE TABLE written (token int8)").await;
    let Some(behind) = behind(db, 4).await else {
        return;
    };
    let mut conn = behind.pool.get().await.unwrap();
    // Not known yet to be behind a pooler, and known.
    let fresh = Table::new().with_text();
    let table = Table::new().with_text();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    for table in [&fresh, &table] {
        let undone: Result<(), Error> = conn
            .transaction(async |conn| {
                conn.batch_execute("INSERT INTO written VALUES (1)")
                    .await
                    .map_err(Error::Database)?;
                assert!(table.find_text(conn, "k").await?.is_some());
                assert_eq!(table.list(conn).await?.len(), 1);
                assert!(table.holds(conn, &lease).await?);
                let insert = "INSERT INTO written VALUES (1)";
                conn.batch_execute(insert).await.map_err(Error::Database)?;
                Err(Error::Database(diesel::result::Error::RollbackTransaction))
            })
            .await;
        let error = undone.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Database(diesel::result::Error::RollbackTransaction)
            ),
            "{error:?}"
        );
        assert_eq!(behind.db.count("SELECT count(*) FROM written").await, 0);
    }
    assert!(table.release(&mut conn, &lease).await.unwrap());
    conn.begin_test_transaction().await.unwrap();
    let lease = table.acquire(&mut conn, key("test")).await.unwrap();
    assert!(
        table
            .acquire(&mut conn, key("test"))
            .await
            .unwrap_err()
            .is_busy()
    );
    assert!(table.renew(&mut conn, &lease, TTL).await.unwrap());
    assert!(table.release(&mut conn, &lease).await.unwrap());
    assert!(!table.release(&mut conn, &lease).await.unwrap());
    assert_eq!(
        behind.db.count("SELECT count(*) FROM advisory_lease").await,
        1
    );
}

#[tokio::test]
async fn an_error_behind_a_pooler_leaves_its_connection_good_and_is_told_apart() {
    let Some(behind) = behind(Database::create().await, 4).await else {
        return;
    };
    let mut conn = behind.pool.get().await.unwrap();
    let table = Table::new();
    for _ in 0..4 {
        let error = table.acquire(&mut conn, key("k")).await.unwrap_err();
        assert!(matches!(error, Error::MissingTable { .. }), "{error:?}");
        let error = table.list(&mut conn).await.unwrap_err();
        assert!(matches!(error, Error::MissingTable { .. }), "{error:?}");
    }
    behind.db.until_quiet().await;
    table.set_up(&mut conn).await.unwrap();
    table.set_up(&mut conn).await.unwrap();
    table.acquire(&mut conn, key("k")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_behind_a_pooler_exclude_are_renewed_and_released() {
    let db = database().await;
    db.run("CREATE TABLE counter AS SELECT 0::int8 AS n").await;
    let Some(behind) = behind(db, 4).await else {
        return;
    };
    let leases = Leases::new(behind.pool.clone());
    let mut bodies = JoinSet::new();
    for _ in 0..6 {
        let (leases, db) = (leases.clone(), Arc::clone(&behind.db));
        bodies.spawn(async move {
            for _ in 0..3 {
                let mut held = leases.acquire(Request::text("k")).await.unwrap();
                let added = held.run(async {
                    let n = db.count("SELECT n FROM counter").await;
                    tokio::task::yield_now().await;
                    db.run(&format!("UPDATE counter SET n = {}", n + 1)).await;
                });
                added.await.unwrap();
                held.finish(Ok::<_, Error>(())).await.unwrap();
            }
        });
    }
    bodies.join_all().await;
    assert_eq!(behind.db.count("SELECT n FROM counter").await, 18);

    let renew = Duration::from_millis(100);
    let request = key("long").ttl(TTL).renew(renew).keep(TTL);
    let mut held = leases.acquire(request).await.unwrap();
    let lasts = "SELECT 1 WHERE NOT EXISTS (SELECT FROM advisory_lease \
                 WHERE expires_at > acquired_at + interval '61 s')";
    let body = async {
        behind
            .db
            .until_empty(Duration::from_secs(30), "renewals", lasts)
            .await;
    };
    held.run(body).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert!(leases.acquire(key("long")).await.unwrap_err().is_busy());
    drop(leases.acquire(key("dropped")).await.unwrap());
    let held = "SELECT 1 FROM advisory_lease WHERE expires_at > clock_timestamp() OFFSET 1";
    behind
        .db
        .until_empty(Duration::from_secs(30), "a release", held)
        .await;
    assert_eq!(leases.list().await.unwrap().len(), 1);
    behind.db.until_quiet().await;
}
