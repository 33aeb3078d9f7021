use advisory_runtime::{Error, LockKey, OwnedLockGuard, Pool as _, Request, Wait, session};
use advisory_tests::{AdvisoryLock, Database, LockedKey};
use diesel::sql_types::Text;
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

mod leader;

crate::guide::page!("owned-locks", 2);

#[tokio::test]
async fn of_two_importers_one_waits_without_a_connection() {
    let db = Database::create().await;
    let pool = db.deadpool(2);
    let first = Importer::start(&pool).await.unwrap();
    let (second, ()) = tokio::join!(Importer::start(&pool), async {
        let tries = "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'idle' \
                     AND datname = current_database() AND query LIKE '%pg_try_advisory_lock%')";
        db.until_empty(Duration::from_secs(30), "a missed try", tries)
            .await;
        drop(pool.get().await.unwrap());
        first.stop().await.unwrap();
    });
    second.unwrap().stop().await.unwrap();
    db.until_no_locks().await;
}

crate::guide::page!("owned-locks", 3);

struct Socket(Receiver<String>);

impl Socket {
    async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}

/// A client and its socket.
fn connected() -> (Sender<String>, Socket) {
    let (client, socket) = channel(1);
    (client, Socket(socket))
}

async fn save(conn: &mut Object<AsyncPgConnection>, change: &str) -> Result<(), Error> {
    let insert = diesel::sql_query("INSERT INTO change VALUES ($1)");
    insert.bind::<Text, _>(change).execute(conn).await?;
    Ok(())
}

#[tokio::test]
async fn a_lock_is_held_for_as_long_as_a_clients_connection() {
    let db = Database::create().await;
    db.run("CREATE TABLE change (text text CHECK (text <> 'refused'))")
        .await;
    let pool = db.deadpool(2);
    let (client, socket) = connected();
    assert!(matches!(
        edit(&pool, 7, socket).await.unwrap(),
        Answer::Open
    ));
    let (_other, socket) = connected();
    assert!(matches!(
        edit(&pool, 7, socket).await.unwrap(),
        Answer::Conflict
    ));
    let pid = db.locks().await[0].pid;
    client.send("a word".to_owned()).await.unwrap();
    drop(client);
    db.until_no_locks().await;
    let open = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(db.count(&open).await, 1, "back to the pool");
    assert_eq!(db.count("SELECT count(*) FROM change").await, 1);
    // A client whose change fails ends its task, which drops the lock.
    let (client, socket) = connected();
    assert!(matches!(
        edit(&pool, 7, socket).await.unwrap(),
        Answer::Open
    ));
    client.send("refused".to_owned()).await.unwrap();
    db.until_no_locks().await;
    let (_client, socket) = connected();
    assert!(matches!(
        edit(&pool, 7, socket).await.unwrap(),
        Answer::Open
    ));
    // So does one whose lock is lost with its session.
    let (client, socket) = connected();
    assert!(matches!(
        edit(&pool, 8, socket).await.unwrap(),
        Answer::Open
    ));
    for AdvisoryLock { pid, .. } in db.locks().await {
        db.terminate(pid).await;
    }
    client.send("too late".to_owned()).await.unwrap();
    client.closed().await;
    assert_eq!(db.count("SELECT count(*) FROM change").await, 1);
}

crate::guide::page!("owned-locks", 4);

async fn collect(conn: &mut AsyncPgConnection) -> Result<String, Error> {
    let report = diesel::dsl::sql::<Text>("SELECT text FROM report");
    Ok(report.get_result(conn).await?)
}

async fn send_to_printer(report: &str) {
    assert_eq!(report, "of today");
}

async fn mark_as_printed(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    let mark = diesel::sql_query("UPDATE report SET is_printed = true");
    mark.execute(conn).await?;
    Ok(())
}

async fn held(db: &Database) -> Vec<LockedKey> {
    db.locks().await.into_iter().map(|lock| lock.key).collect()
}

#[tokio::test]
async fn a_worker_hands_its_lock_to_another_task() {
    let db = Database::create().await;
    db.run("CREATE TABLE report AS SELECT 'of today' AS text, false AS is_printed")
        .await;
    let (reports, queue) = channel(1);
    prepare(db.connect().await, reports).await.unwrap();
    assert_eq!(held(&db).await, [LockedKey::Bigint(7_200)]);
    print(queue).await.unwrap();
    assert_eq!(held(&db).await, []);
    let printed = "SELECT count(*) FROM report WHERE is_printed";
    assert_eq!(db.count(printed).await, 1);
    // The printer is gone: the message is dropped, and its lock with it.
    let (reports, queue) = channel(1);
    drop(queue);
    prepare(db.connect().await, reports).await.unwrap();
    db.until_no_locks().await;
    // The lock is lost while the printer is busy.
    let (reports, queue) = channel(1);
    prepare(db.connect().await, reports).await.unwrap();
    db.terminate(db.locks().await[0].pid).await;
    let error = print(queue).await.unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error:?}");
}
