//! A lock's error as Diesel's error: it keeps the database's answer, and contains the lock's error.

use crate::calls::{FromDiesel, diesel_only};
use advisory_runtime::{Error, PoolError, claim, lease, testing};
use advisory_tests::bookings::{busy, run};
use advisory_tests::{assert_error, assert_matches};
use diesel::result::{DatabaseErrorKind, Error as DieselError};

/// The result for an application that matches Diesel's errors by their kind, or by the server's
/// text.
fn kind_and_words(error: &DieselError) -> (DatabaseErrorKind, &str) {
    match error {
        DieselError::DatabaseError(kind, answer) => (*kind, answer.message()),
        other => panic!("not the database's answer: {other:?}"),
    }
}

#[tokio::test]
async fn a_database_error_keeps_its_kind_text_and_lock_error() {
    let (_db, _holder, mut conn) = busy().await;
    let conn = &mut conn;
    let FromDiesel(error) = diesel_only(conn, 7).await.unwrap_err();
    let (kind, words) = kind_and_words(&error);
    assert_matches!(kind, DatabaseErrorKind::Unknown);
    assert!(words.contains("`room:<room>`"), "{words}");
    assert!(
        words.ends_with(": canceling statement due to lock timeout"),
        "{words}"
    );
    assert_error!(error, TimedOut);

    run(conn, "SET lock_timeout = 0").await;
    run(conn, "SET statement_timeout = '200ms'").await;
    let FromDiesel(error) = diesel_only(conn, 7).await.unwrap_err();
    let (kind, words) = kind_and_words(&error);
    assert_matches!(kind, DatabaseErrorKind::Unknown);
    assert!(
        words.ends_with(": canceling statement due to statement timeout"),
        "{words}"
    );
    assert_error!(error, Cancelled);
}

/// An error with a cause, like an application's.
#[derive(Debug)]
struct Wrapped<E>(E);

impl<E> std::fmt::Display for Wrapped<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the job failed")
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Wrapped<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn each_products_error_is_found_in_that_of_another() {
    for (own, other) in testing::lock_errors()
        .into_iter()
        .zip(testing::lock_errors())
    {
        let text = own.to_string();
        let leased = lease::Error::from(DieselError::from(own));
        assert_matches!(leased, lease::Error::Database(_));
        assert!(lease::Error::find(&leased).is_some());
        if !matches!(other, Error::Database(_) | Error::Pool(_)) {
            assert_eq!(Error::find(&leased).unwrap().to_string(), text);
            let wrapped = Wrapped(DieselError::from(leased));
            assert_eq!(Error::find(&wrapped).unwrap().to_string(), text);
            assert!(lease::Error::find(&wrapped).is_none(), "{wrapped:?}");
            let claimed = Wrapped(claim::Error::from(wrapped.0));
            assert_eq!(Error::find(&claimed).unwrap().to_string(), text);
            assert!(claim::Error::find(&claimed).is_some());
        }
    }
    for error in testing::lease_errors() {
        let text = error.to_string();
        if !matches!(error, lease::Error::Database(_)) {
            let locked = Wrapped(DieselError::from(error));
            assert_eq!(lease::Error::find(&locked).unwrap().to_string(), text);
            assert!(Error::find(&locked).is_none());
            let again = lease::Error::from(locked.0);
            assert!(!matches!(again, lease::Error::Database(_)), "{again:?}");
        }
    }
    for error in testing::claim_errors() {
        let text = error.to_string();
        if !matches!(error, claim::Error::Database(_)) {
            let error = DieselError::from(error);
            assert_eq!(claim::Error::find(&error).unwrap().to_string(), text);
            assert!(lease::Error::find(&error).is_none());
        }
    }
}

#[test]
fn a_pools_error_passes_through_diesels() {
    let error = DieselError::from(PoolError::new("it is closed"));
    assert_matches!(Error::from(error), Error::Pool(_));
    let error = DieselError::from(PoolError::new("it is closed"));
    assert_matches!(lease::Error::from(error), lease::Error::Pool(_));
}
