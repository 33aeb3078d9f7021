//! The guide's pages show what is printed. Numbers differ, so only their places are compared.

use crate::calls::book;
use advisory_runtime::lease::Table;
use advisory_runtime::migrations::{KEY, Migrator};
use advisory_runtime::testing::Observer;
use advisory_runtime::{Error, Key, LockKey, Request, Wait, lock_key, monitor, session, xact};
use advisory_tests::bookings::{database, execute, insert, key_of};
use advisory_tests::futures::spawn;
use advisory_tests::pauses::pause;
use advisory_tests::statements::run;
use advisory_tests::{Database, OwnServer, leases, left_out, owns_server};
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

macro_rules! page {
    ($page:literal) => {
        include_str!(concat!("../../../advisory-runtime/docs/", $page, ".md"))
    };
}

/// The block of a page that contains this text, without its line breaks.
fn block(page: &str, words: &str) -> String {
    let mut blocks = page.split("\n```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains(words));
    let block = block.unwrap_or_else(|| panic!("no block has `{words}`"));
    let (_language, block) = block.split_once('\n').unwrap();
    block.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn shape(line: &str) -> String {
    let mut shape = String::new();
    for part in line.split_inclusive(|letter: char| !letter.is_ascii_digit()) {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
        if rest.len() < part.len() {
            shape.push('0');
        }
        shape += rest;
    }
    shape.replace("0ms", "0s").replace("0 ms", "0 s")
}

async fn named(db: &Database) -> AsyncPgConnection {
    let mut conn = db.connect().await;
    execute(&mut conn, "SET application_name = 'booking-service'")
        .await
        .unwrap();
    conn
}

struct Room(i64);

impl LockKey for Room {
    fn key(&self) -> Key {
        key_of(self.0).into()
    }

    fn pattern(&self) -> &'static str {
        "room:<room>"
    }
}

#[tokio::test]
async fn the_line_about_a_holder() {
    let db = database().await;
    let (mut holder, mut conn) = (named(&db).await, db.connect().await);
    let mut held = xact::begin(&mut holder, Room(7)).await.unwrap();
    insert(held.conn(), 7, "Ada").await.unwrap();
    let missed = xact::begin(&mut conn, Request::new(Room(7)).wait(Wait::Never)).await;
    let error = missed.err().unwrap();
    let holders = monitor::holders(&mut conn, &error).await.unwrap();
    let shown = block(page!("errors"), "is held by process");
    assert_eq!(shape(&holders[0].to_string()), shape(&shown));
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

async fn book_unlocked(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<bool> {
    insert(conn, room, "Bob").await?;
    Ok(true)
}

#[tokio::test]
async fn what_a_test_says_where_a_lock_is_missing() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let mut observer = Observer::new(db.connect().await);
    let test = spawn(async move {
        let room = 7;
        let key = lock_key!("room:<room: int>", name = "room");
        let (first, second) = (book(&mut a, room, "Ada"), book_unlocked(&mut b, room));
        observer.interleave(key, first, second).await
    });
    let panic = test.await.unwrap_err().into_panic();
    let said = panic.downcast::<String>().unwrap();
    let (at, said) = said.split_once(": ").unwrap();
    assert!(at.starts_with(file!()), "{at}");
    let shown = block(page!("testing"), "was not seen to wait");
    let (_at, shown) = shown.split_once(": ").unwrap();
    assert_eq!(said, shown);
}

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("tests/it/migrations");

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_steps_of_a_run_of_migrations() {
    let db = Database::create().await;
    let holder = session::acquire_owned(named(&db).await, KEY).await.unwrap();
    let (tell, mut told) = unbounded_channel();
    let migrator = Migrator::new(MIGRATIONS).on_step(move |step| drop(tell.send(step.to_string())));
    let url = db.url().to_owned();
    let run = spawn(async move { migrator.run(&url).await });
    // In its first second the holder has no age.
    let waiting = loop {
        let step = tokio::time::timeout(Duration::from_secs(30), told.recv());
        let step = step.await.expect("a step each second").unwrap();
        if step.contains(", for ") {
            break step;
        }
    };
    drop(holder.finish(Ok::<_, Error>(())).await.unwrap());
    let mut steps = vec![waiting];
    while steps.len() < 4 {
        let step = told.recv().await.unwrap();
        if !step.starts_with("waiting") {
            steps.push(step);
        }
    }
    run.await.unwrap().unwrap();
    let shown = block(page!("migrations"), "waiting for process");
    assert_eq!(shape(&steps.join(" ")), shape(&shown));
}

/// The trigger of the example, which is printed by the command.
#[tokio::test]
async fn what_a_guarded_table_answers() {
    let db = Database::create().await;
    db.run("CREATE TABLE bookings (tenant_id uuid, date date, slot int4, guest text)")
        .await;
    db.run(include_str!("../../../examples/guarded_table/up.sql"))
        .await;
    let mut conn = db.connect().await;
    let write = "INSERT INTO bookings VALUES (gen_random_uuid(), now())";
    let Err(DieselError::DatabaseError(_, answer)) = execute(&mut conn, write).await else {
        panic!("the write passes the guard")
    };
    let said = format!(
        "ERROR: {} HINT: {}",
        answer.message(),
        answer.hint().unwrap()
    );
    assert_eq!(said, block(page!("guarded-tables"), "HINT: "));
}

/// A reader can repeat the measurement of what a guard costs.
#[tokio::test]
async fn the_statements_that_measure_a_guard_run() {
    if !owns_server() {
        return left_out("cost of a guard", "the server is not our own");
    }
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    run(
        &mut conn,
        include_str!("../../../advisory-runtime/migrations/2026-01-01-000000_advisory_keys/up.sql"),
    )
    .await;
    let statements = block(page!("guarded-tables"), "generate_series");
    let mut counts = Vec::new();
    for statement in statements.split_terminator(';').take(2) {
        let (_, statement) = statement.split_once("SELECT ").unwrap();
        let count = sql::<BigInt>(&format!("SELECT {statement}"));
        counts.push(count.get_result::<i64>(&mut conn).await.unwrap());
    }
    assert_eq!(counts, [10_000, 100]);
    conn.batch_execute(&statements).await.unwrap();
}

/// The size of the lease table's file for each key that was used once, in bytes.
async fn bytes_for_each_key(server: &OwnServer, conn: &mut AsyncPgConnection) -> i64 {
    const KEYS: i64 = 2_000;
    let size = || sql::<BigInt>("SELECT pg_catalog.pg_table_size('advisory_lease')");
    let before: i64 = size().get_result(conn).await.unwrap();
    let leases = leases::leases_at(server.url(), 1);
    for number in 0..KEYS {
        let event = leases::key(&format!("event:{before}:{number}"));
        leases::once(&leases, event).await.unwrap();
    }
    let after: i64 = size().get_result(conn).await.unwrap();
    (after - before) / KEYS
}

async fn autovacuums(conn: &mut AsyncPgConnection) -> i64 {
    const COUNT: &str =
        "(SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%')";
    let count = diesel::select(sql::<BigInt>(COUNT));
    count.get_result(conn).await.unwrap()
}

/// The page's 50 to 80 bytes, and its 350 with a transaction that stays open.
#[tokio::test]
async fn the_file_of_leases_grows_as_the_page_says() {
    if !owns_server() {
        return left_out("file size", "the server is not our own");
    }
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    let mut beside = AsyncPgConnection::establish(server.url()).await.unwrap();
    Table::new().set_up(&mut conn).await.unwrap();
    // Its processes have snapshots too.
    run(&mut conn, "ALTER SYSTEM SET autovacuum = off").await;
    conn.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    while autovacuums(&mut conn).await > 0 {
        pause().await;
    }
    let mut alone = bytes_for_each_key(&server, &mut conn).await;
    if alone >= 90 {
        // Whatever had a snapshot on a busy machine added to it.
        alone = bytes_for_each_key(&server, &mut conn).await;
    }
    run(
        &mut beside,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1",
    )
    .await;
    let with_a_snapshot = bytes_for_each_key(&server, &mut conn).await;
    assert!((30..90).contains(&alone), "{alone} bytes");
    assert!(
        (200..400).contains(&with_a_snapshot),
        "{with_a_snapshot} bytes"
    );
}
