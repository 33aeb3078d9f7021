//! `acquire_cleanup_lock` and `release_cleanup_lock` between sessions, and together with a locked
//! function in Rust.

use crate::{EmailLock, migrated, says};
use advisory_runtime::xact;

#[tokio::test]
async fn a_lock_is_acquired_by_one_session_and_released_once() {
    let (db, mut first) = migrated().await;
    let mut second = db.connect().await;
    assert!(says(&mut first, "acquire_cleanup_lock('user@x.com')").await);
    assert!(!says(&mut second, "acquire_cleanup_lock(' USER@X.com')").await);
    assert!(
        !says(&mut second, "release_cleanup_lock('user@x.com')").await,
        "not the second's to release"
    );
    assert!(
        says(&mut first, "acquire_cleanup_lock('user@x.com')").await,
        "held twice now"
    );
    assert!(says(&mut first, "release_cleanup_lock('User@X.com ')").await);
    assert!(
        !says(&mut second, "acquire_cleanup_lock('user@x.com')").await,
        "held once still"
    );
    assert!(says(&mut first, "release_cleanup_lock('user@x.com')").await);
    assert!(!says(&mut first, "release_cleanup_lock('user@x.com')").await);
    assert!(says(&mut second, "acquire_cleanup_lock('user@x.com')").await);
    drop(second);
    db.until_no_locks().await;
}

#[tokio::test]
async fn the_rust_side_and_the_functions_keep_each_other_out() {
    let (db, mut rust) = migrated().await;
    let mut other = db.connect().await;
    let held = xact::begin(
        &mut rust,
        EmailLock {
            email: " User@X.com",
        },
    )
    .await
    .unwrap();
    assert!(!says(&mut other, "acquire_cleanup_lock('user@x.com')").await);
    held.finish(Ok::<_, advisory_runtime::Error>(()))
        .await
        .unwrap();
    assert!(says(&mut other, "acquire_cleanup_lock('user@x.com')").await);
}
