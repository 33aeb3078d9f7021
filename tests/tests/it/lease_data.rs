//! The data of a lease's holder, such as a leader's address, as others read it.

use advisory_runtime::lease::{Error, Table};
use advisory_runtime::monitor::{self, Names};
use advisory_tests::leases::{database, key, leases_at, once, orphan};
use advisory_tests::{Database, assert_matches};
use std::time::Duration;

const HERE: &str = "10.0.0.7:8080";

async fn data_of(db: &Database) -> Option<String> {
    let row = Table::new().find(&mut db.connect().await, key("k")).await;
    row.unwrap().expect("it is held").data
}

#[tokio::test]
async fn the_holders_data_is_read_by_others_and_changes() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = orphan(db.url(), &table, key("k").data(HERE)).await;
    assert_eq!(data_of(&db).await.as_deref(), Some(HERE));
    let mut other = db.connect().await;
    let seen = monitor::leases(&mut other, &table, &Names::none()).await;
    assert_eq!(seen.unwrap()[0].row.data.as_deref(), Some(HERE));
    for data in [Some("10.0.0.8:8080"), None, Some("")] {
        assert!(table.set_data(&mut conn, &lease, data).await.unwrap());
        assert_eq!(data_of(&db).await.as_deref(), data);
    }
    assert!(lease.is_held());
}

#[tokio::test]
async fn the_next_holder_has_its_own_data() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let old = orphan(db.url(), &table, key("k").data(HERE)).await;
    assert!(table.release(&mut conn, &old).await.unwrap());
    let erased = "SELECT count(*) FROM advisory_lease WHERE data IS NULL";
    assert_eq!(db.count(erased).await, 1);
    let new = orphan(db.url(), &table, key("k")).await;
    assert!(!table.set_data(&mut conn, &old, Some(HERE)).await.unwrap());
    assert_eq!(data_of(&db).await, None);
    assert!(new.is_held() && !old.is_held());
}

#[tokio::test]
async fn a_key_that_is_done_keeps_the_data() {
    let db = database().await;
    let request = key("k").data(HERE).keep(Duration::from_secs(3600));
    once(&leases_at(db.url(), 1), request).await.unwrap();
    assert_eq!(data_of(&db).await.as_deref(), Some(HERE));
}

#[tokio::test]
async fn data_that_the_table_cannot_take_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = orphan(db.url(), &table, key("k")).await;
    let longest = "é".repeat(512);
    assert!(
        table
            .set_data(&mut conn, &lease, Some(&longest))
            .await
            .unwrap()
    );
    for data in ["é".repeat(512) + "x", "a\0b".to_owned()] {
        let set = table.set_data(&mut conn, &lease, Some(&data)).await;
        assert_matches!(set, Err(Error::Invalid { .. }));
        let asked = once(&leases_at(db.url(), 1), key("other").data(data)).await;
        assert_matches!(asked, Err(Error::Invalid { .. }));
    }
    assert_eq!(data_of(&db).await, Some(longest));
}
