//! Blocking Diesel: the session's own timeouts after a session-level lock with `max_hold` was
//! dropped, or its body panicked.

use advisory_runtime::blocking::session;
use advisory_runtime::{Error, Request, Wait, advisory_lock};
use advisory_tests::blocking::{execute, held_by, pid_of};
use advisory_tests::bookings::database;
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::sql_types::Text;
use diesel::{Connection as _, RunQueryDsl};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Even on a busy machine, a body that does nothing does not take this long.
const BOUND: Duration = Duration::from_secs(600);

/// The settings that `max_hold` changes; `transaction_timeout` exists since PostgreSQL 17.
fn timeouts(conn: &mut PgConnection) -> String {
    let all = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN \
               ('idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout', \
                'client_connection_check_interval')";
    diesel::dsl::sql::<Text>(all).get_result(conn).unwrap()
}

fn set_timeouts(conn: &mut PgConnection, value: &str) {
    let set = format!(
        "SELECT set_config(name, '{value}', false) FROM pg_settings WHERE name IN \
         ('idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout', \
                'client_connection_check_interval')"
    );
    execute(conn, &set).unwrap();
}

/// The state in which a body leaves its session.
const OPEN: [&str; 3] = ["", "BEGIN", "BEGIN;SELECT 1/0"];

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_lock_returns_a_session_with_its_own_timeouts() {
    let db = database().await;
    let pool = db.r2d2(1);
    let one = Request::new(7).max_hold(BOUND);
    let requests = [
        one.clone(),
        one.clone().wait(Wait::Never),
        one.wait(BOUND).permits(3),
        Request::all([7, 8]).shared().max_hold(BOUND),
    ];
    for own in ["0", "2h"] {
        let mut conn = pool.get().unwrap();
        set_timeouts(&mut conn, own);
        let (pid, before) = (pid_of(&mut conn), timeouts(&mut conn));
        drop(conn);
        for request in &requests {
            for open in OPEN {
                let held = session::acquire_owned(pool.get().unwrap(), request.clone());
                let mut lock = held.unwrap();
                assert_ne!(timeouts(lock.conn()), before, "{request:?}");
                drop(lock.conn().batch_execute(open));
                drop(lock);
                let mut conn = pool.get().unwrap();
                assert_eq!(timeouts(&mut conn), before, "{request:?}, {open}");
                assert_eq!(pid_of(&mut conn), pid, "{request:?}, {open}");
                assert_eq!(held_by(&mut conn).unwrap(), 0, "{request:?}, {open}");
            }
        }
    }
}

#[advisory_lock(
    key = "room:<room>",
    name = "room",
    scope = "session",
    max_hold = "10m"
)]
fn panics(conn: &mut PgConnection, room: i64, open: &str) -> Result<(), Error> {
    drop(conn.batch_execute(open));
    panic!("the body's own panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_body_leaves_the_session_its_own_timeouts() {
    let db = database().await;
    let mut conn = db.establish();
    set_timeouts(&mut conn, "2h");
    let (pid, before) = (pid_of(&mut conn), timeouts(&mut conn));
    for is_test in [false, true] {
        if is_test {
            conn.begin_test_transaction().unwrap();
        }
        let kinds = if is_test { &OPEN[..1] } else { &OPEN[..] };
        for open in kinds {
            let call = AssertUnwindSafe(|| panics(&mut conn, 7, open));
            catch_unwind(call).unwrap_err();
            assert_eq!(timeouts(&mut conn), before, "{is_test}, {open}");
            assert_eq!(pid_of(&mut conn), pid, "{is_test}, {open}");
            assert_eq!(held_by(&mut conn).unwrap(), 0, "{is_test}, {open}");
        }
    }
}
