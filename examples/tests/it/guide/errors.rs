use advisory_runtime::monitor::{self, LockHolder};
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::Database;
use diesel_async::AsyncPgConnection;

crate::guide::page!("errors", 1);

/// An error as `#[error(transparent)]` makes it, or `#[error("{0}")]`.
#[derive(Debug)]
enum AppError {
    Transparent(Error),
    Printed(Error),
}

impl std::fmt::Display for AppError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Transparent(error) | Self::Printed(error)) = self;
        error.fmt(f)
    }
}

impl std::error::Error for AppError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Transparent(error) => error.source(),
            Self::Printed(error) => Some(error),
        }
    }
}

#[tokio::test]
async fn an_error_in_a_variant_of_the_users_own_is_found_if_it_is_a_source() {
    let db = Database::create().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, ROOM_7).await.unwrap();
    for (wrap, expected) in [
        (AppError::Printed as fn(Error) -> AppError, 504),
        (AppError::Transparent, 500),
    ] {
        let error = book(&mut conn, 7).await.unwrap_err();
        assert_eq!(status(&wrap(error)), expected);
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

crate::guide::page!("errors", 2);

/// The number of `room:7`.
const ROOM_7: i64 = -4814109257161839213;

#[tokio::test]
async fn a_refused_caller_learns_who_holds_the_room() {
    let db = Database::create().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let pid = advisory_tests::pid_of(&mut holder).await;
    let held = xact::begin(&mut holder, ROOM_7).await.unwrap();
    let error = book_and_log(&mut conn, 7).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert_eq!(status(&error), 504);
    let holders = monitor::holders(&mut conn, &error).await.unwrap();
    let pids: Vec<_> = holders.iter().map(LockHolder::pid).collect();
    assert_eq!(pids, [Some(pid)]);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    book_and_log(&mut conn, 7).await.unwrap();
}
