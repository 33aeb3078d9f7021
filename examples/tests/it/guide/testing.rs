use advisory_runtime::testing::Observer;
use advisory_runtime::{Key, advisory_lock, lock_key};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

crate::guide::runs_the_page!("testing", "testing.rs");

#[advisory_lock(key = "room:<room>", name = "room")]
async fn book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    let insert = diesel::sql_query("INSERT INTO booking VALUES ($1, 'Ada')");
    insert
        .bind::<diesel::sql_types::BigInt, _>(room)
        .execute(conn)
        .await
}

/// What the function does.
async fn books_a_room(mut conn: AsyncPgConnection) {
    conn.begin_test_transaction().await.unwrap();
    assert_eq!(book(&mut conn, 7).await, Ok(1));
}

/// That two of them meet: the second waits while the first writes.
async fn one_waits_for_the_other(
    mut a: AsyncPgConnection,
    mut b: AsyncPgConnection,
    other: AsyncPgConnection,
) {
    let room = 7;
    let key = lock_key!("room:<room: int>", name = "room");
    let (first, second) = Observer::new(other)
        .interleave(key, book(&mut a, room), book(&mut b, room))
        .await;
    assert!(first.is_ok() && second.is_ok());
}

mod in_memory {
    use advisory_runtime::advisory_lease;
    use advisory_runtime::lease::{Error, Leases, Source};

    struct Reports<S> {
        leases: S, // a pool in the program
    }

    impl<S: Source + Sync> Reports<S> {
        #[advisory_lease(key = "report:<month>", pool = self.leases, keep = "24h", on_done = Ok(false))]
        async fn send(&self, month: &str) -> Result<bool, Error> {
            Ok(true)
        }
    }

    async fn a_report_is_sent_once_a_day() {
        tokio::time::pause(); // tokio's feature `test-util`
        let reports = Reports {
            leases: Leases::in_memory(),
        };
        assert!(reports.send("2026-11").await.unwrap());
        assert!(!reports.send("2026-11").await.unwrap());
        tokio::time::advance(std::time::Duration::from_secs(24 * 60 * 60)).await;
        assert!(reports.send("2026-11").await.unwrap());
    }

    #[tokio::test]
    async fn the_test_without_a_database_passes() {
        a_report_is_sent_once_a_day().await;
    }
}

#[tokio::test]
async fn the_tests_of_the_page_pass() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8, guest text)").await;
    let booked = "SELECT count(*) FROM booking WHERE room = 7";
    books_a_room(db.connect().await).await;
    assert_eq!(db.count(booked).await, 0, "a test transaction");
    let (a, b, other) = (db.connect().await, db.connect().await, db.connect().await);
    one_waits_for_the_other(a, b, other).await;
    assert_eq!(db.count(booked).await, 2);
}

/// In a process of its own: the page about nesting takes the locks of two rooms in the order of its
/// caller, which this finds.
#[test]
fn the_locks_of_this_program_do_not_collide_and_have_one_order() {
    const ALONE: &str = "ADVISORY_TEST_IS_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "guide::testing::the_locks_of_this_program_do_not_collide_and_have_one_order";
        let ended = alone.args(["--exact", test]).env(ALONE, "yes").output();
        let ended = ended.unwrap();
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    // No two locks have a key in common. In `src/lib.rs`, or in `src/main.rs` where its locks are.
    advisory_runtime::inventory::assert_no_collisions();

    // At the end of a test that takes locks under locks: in one order, so that no two calls can
    // wait for each other.
    advisory_runtime::inventory::assert_lock_order();
}

#[test]
fn a_deployed_key_stays_what_it_is() {
    // A deployed key stays what it is.
    let room = 7;
    assert_eq!(
        lock_key!("room:<room: int>", name = "room"),
        Key::BigInt(-4814109257161839213)
    );
}
