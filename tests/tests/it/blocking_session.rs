//! Blocking Diesel: the check of a session before its first session-level lock.

use advisory_runtime::blocking::session;
use advisory_runtime::{Request, Wait};
use advisory_tests::bookings::{database, key_of};
use advisory_tests::{Database, assert_error};
use diesel::Connection;
use diesel::pg::PgConnection;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_finds_that_a_second_session_is_kept_out() {
    let db = database().await;
    let pool = db.r2d2(2);
    session::verify(&pool).unwrap();
    assert_eq!(db.locks().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_says_that_the_pool_must_give_two_connections() {
    let db = database().await;
    let pool = db.impatient_r2d2(Duration::from_millis(50)).await;
    let error = session::verify(&pool).unwrap_err();
    assert_error!(error, Pool);
    let said = error.to_string();
    assert!(
        said.contains("its maximum size must be at least 2"),
        "{said}"
    );
}

/// Its cancel keys are longer, and belong to libpq: the check of a session does not depend on them.
/// Older servers answer with 3.0.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_protocol_3_2_works_like_any_other() {
    let db = database().await;
    let parameters = if db.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{parameters}max_protocol_version=3.2", db.url());
    let connect = || PgConnection::establish(&url).unwrap();
    let (mut first, mut second) = (connect(), connect());
    session::verify(&Database::r2d2_at(&url, 2)).unwrap();
    let held = session::acquire(&mut first, key_of(7)).unwrap();
    let never = Request::new(key_of(7)).wait(Wait::Never);
    assert_error!(session::acquire(&mut second, never), NotAvailable);
    drop(held);
    assert_eq!(db.locks().await, []);
}
