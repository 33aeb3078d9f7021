//! The JSON of live locks has the members that its page describes.

use std::time::Duration;

use advisory_runtime::lease::{Request, Table};
use advisory_tests::Database;
use advisory_tests::leases::{FIRST, orphan};
use serde_json::Value;

use crate::json_members::agrees;
use crate::live_view::{holder, json, waiter};
use crate::programs::booking_service;

#[tokio::test(flavor = "multi_thread")]
async fn json_has_every_member_of_the_schema() {
    // Before the lease is granted: building the fixture can take longer than the lease lasts.
    let artifact = booking_service();
    let db = Database::create().await;
    let table = Table::new();
    table.set_up(&mut db.connect().await).await.unwrap();
    let request = Request::text("mail:7").ttl(Duration::from_secs(3_600));
    orphan(db.url(), &table, request).await;
    let take = "/*advisory:nightly:<day>*/;SELECT pg_catalog.pg_advisory_lock(5,-6)";
    let job = holder(&db, "job", take).await;
    let (pid, waiting) = waiter(&db, "job", "SELECT pg_advisory_lock_shared(5, -6)").await;
    let value = json(&db, &["--artifact", &artifact]).await;
    agrees("Live locks", &[], std::slice::from_ref(&value));
    let lock = &value["locks"][0];
    assert_eq!(lock["pair"], serde_json::json!([5, -6]));
    assert_eq!(lock["names"][0]["key"], "nightly:<day>");
    assert_eq!(lock["names"][0]["certainty"], "likely");
    assert_eq!(lock["holders"][0]["scope"], "session");
    assert_eq!(lock["waiters"][0]["pid"], pid);
    assert_eq!(lock["waiters"][0]["mode"], "shared");
    let backends = value["backends"].as_array().unwrap();
    let holds = |backend: &&Value| backend["pid"] != pid;
    let backend = backends.iter().find(holds).unwrap();
    assert_eq!(backend["application"], "job");
    assert_eq!(backend["comment"], "nightly:<day>");
    // The first was the one that `orphan` takes over.
    assert_eq!(value["leases"][0]["token"], FIRST + 2);
    assert_eq!(value["leases"][0]["is_done"], false);
    assert_eq!(value["leases"][0]["pattern"], Value::Null);
    assert!(value["leases"][0]["remaining_ms"].as_u64().unwrap() > 0);
    drop(job);
    drop(waiting.await.unwrap());
}
