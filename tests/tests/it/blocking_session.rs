//! Blocking Diesel: the check of a session before its first session-level lock.

use crate::bookings::{database, key_of};
use advisory_runtime::blocking::session;
use advisory_runtime::{Error, Request, Wait};
use diesel::Connection;
use diesel::pg::PgConnection;

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_finds_that_a_second_session_is_kept_out() {
    let db = database().await;
    let pool = db.r2d2(2);
    session::verify(&mut pool.get().unwrap(), &mut pool.get().unwrap()).unwrap();
    assert_eq!(db.locks().await, []);
}

/// Its cancel keys are longer, and belong to libpq: the check of a session does not depend on them. Older servers answer with 3.0.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_protocol_3_2_works_like_any_other() {
    let db = database().await;
    let parameters = if db.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{parameters}max_protocol_version=3.2", db.url());
    let connect = || PgConnection::establish(&url).unwrap();
    let (mut first, mut second) = (connect(), connect());
    session::verify(&mut first, &mut second).unwrap();
    let held = session::acquire(&mut first, key_of(7)).unwrap();
    let never = Request::new(key_of(7)).wait(Wait::Never);
    let error = session::acquire(&mut second, never).unwrap_err();
    assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
    drop(held);
    assert_eq!(db.locks().await, []);
}
