use advisory_runtime::testing::Observer;
use advisory_runtime::{Key, advisory_lock, lock_key};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

crate::guide::page!("testing", 1);

mod in_memory {
    use advisory_runtime::advisory_lease;
    use advisory_runtime::lease::{Error, Leases, Source};

    crate::guide::page!("testing", 4);

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
    crate::guide::page!("testing", 2);
}

#[test]
fn a_deployed_key_stays_what_it_is() {
    crate::guide::page!("testing", 3);
}
