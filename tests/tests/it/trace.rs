//! The caller's trace in front of the message of a lock that waits at the server, and of no other.

use crate::observers::{each_alone, is_alone};
use advisory_runtime::monitor::{self, Names, TraceContext, show_trace};
use advisory_runtime::{Error, Isolation, Key, LockKey, Request, Wait, session, xact};
use advisory_tests::bookings::{database, key_of};
use advisory_tests::futures::dropped;
use advisory_tests::{Database, assert_error};
use diesel::sql_types::Text;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::sync::atomic::{AtomicU8, Ordering};

static SPAN: AtomicU8 = AtomicU8::new(0);

fn current() -> Option<TraceContext> {
    let span = AtomicU8::load(&SPAN, Ordering::Relaxed);
    TraceContext::new([0xab; 16], [span; 8], 1)
}

async fn text(conn: &mut AsyncPgConnection, query: &str) -> String {
    let row = diesel::dsl::sql::<Text>(query).get_result(conn).await;
    row.unwrap()
}

struct Room;

impl LockKey for Room {
    fn key(&self) -> Key {
        key_of(1).into()
    }

    fn pattern(&self) -> &'static str {
        "room:<room>"
    }
}

#[tokio::test]
async fn a_trace_is_shown_where_a_call_waits() {
    let names = ["each_way_shows_the_current_trace", "a_try_has_no_trace"];
    each_alone("trace", &names).await;
}

/// The comments in front of a call that waits for the room, and the trace as the monitor reads it.
async fn shown(db: &Database, request: Request, takes_session: bool) -> (String, Option<String>) {
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let mut seen = None;
    let waits = async {
        let done = async |conn: &mut AsyncPgConnection| -> Result<(), Error> {
            if takes_session {
                session::acquire(conn, request).await?.finish(Ok(())).await
            } else {
                xact::begin(conn, request).await?.finish(Ok(())).await
            }
        };
        done(&mut conn).await.unwrap();
    };
    let watches = async {
        db.until_waiting(key_of(1)).await;
        let locks = monitor::locks(&mut other, &Names::none()).await.unwrap();
        let mut comments = locks.backends.iter().filter_map(|one| one.comment.as_ref());
        let trace = comments.next().unwrap().traceparent.clone();
        let query = "SELECT substring(query FROM '^(?:/\\*.*?\\*/;)+') FROM pg_stat_activity WHERE query ~ '^/[*]advisory:room'";
        seen = Some((text(&mut other, query).await, trace));
    };
    dropped(waits, watches).await;
    db.until_no_waiters(key_of(1)).await;
    seen.unwrap()
}

/// Does nothing unless another test starts it, like the next one.
#[tokio::test]
async fn each_way_shows_the_current_trace() {
    if !is_alone() {
        return;
    }
    show_trace(current);
    let db = database().await;
    let mut holder = db.connect().await;
    let held = session::acquire(&mut holder, key_of(1)).await.unwrap();
    for (request, takes_session) in [
        (Request::new(Room), false),
        (Request::new(Room).isolation(Isolation::Serializable), false),
        (Request::new(Room), true),
    ] {
        for (span, trace) in [(0, None), (7, Some("0707070707070707"))] {
            SPAN.store(span, Ordering::Relaxed);
            let (comments, read) = shown(&db, request.clone(), takes_session).await;
            let trace = trace.map(|span| format!("00-{}-{span}-01", "ab".repeat(16)));
            let behind = trace
                .as_ref()
                .map(|trace| format!("/*traceparent='{trace}'*/;"));
            let expected = format!("/*advisory:room:<room>*/;{}", behind.unwrap_or_default());
            assert_eq!((comments, read), (expected, trace));
        }
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test]
async fn a_try_has_no_trace() {
    if !is_alone() {
        return;
    }
    show_trace(current);
    SPAN.store(7, Ordering::Relaxed);
    let db = database().await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let mut holder = db.connect().await;
    let held = session::acquire(&mut holder, key_of(1)).await.unwrap();
    for takes_session in [false, true] {
        let request = Request::new(Room).wait(Wait::Never);
        let missed = if takes_session {
            session::acquire(&mut conn, request).await
        } else {
            xact::begin(&mut conn, request).await
        };
        assert_error!(missed, NotAvailable);
        let query = "SELECT query FROM pg_stat_activity WHERE query ~ '^/[*]advisory:room'";
        let tried = text(&mut other, query).await;
        assert!(
            tried.contains("pg_try_advisory") && !tried.contains("traceparent"),
            "{tried}"
        );
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
}
