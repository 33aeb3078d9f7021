//! Blocking Diesel: the level that the attribute asks for.

use advisory_runtime::{Isolation, advisory_lock};
use advisory_tests::blocking::{book_unlocked, execute, setting};
use advisory_tests::bookings::database;
use diesel::QueryResult;
use diesel::pg::PgConnection;

const LEVELS: [(Isolation, &str); 3] = [
    (Isolation::ReadCommitted, "read committed"),
    (Isolation::RepeatableRead, "repeatable read"),
    (Isolation::Serializable, "serializable"),
];

macro_rules! at {
    ($($name:ident: $level:literal)*) => { $(
        #[advisory_lock(key = "room:<room>", name = "room", isolation = $level)]
        fn $name(conn: &mut PgConnection, room: i64) -> QueryResult<(bool, String)> {
            Ok((book_unlocked(conn, room, "Ada")?, setting(conn, "transaction_isolation")))
        }
    )* };
}

at! {
    read_committed: "read committed"
    repeatable_read: "repeatable read"
    serializable: "serializable"
}

/// Whether it has booked, and at which level.
fn book_at(
    conn: &mut PgConnection,
    isolation: Isolation,
    room: i64,
) -> QueryResult<(bool, String)> {
    match isolation {
        Isolation::RepeatableRead => repeatable_read(conn, room),
        Isolation::Serializable => serializable(conn, room),
        Isolation::ReadCommitted => read_committed(conn, room),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_is_the_functions_own_whatever_the_roles_default_is() {
    let db = database().await;
    let mut conn = db.establish();
    for (_, default) in LEVELS {
        let set = format!("SET default_transaction_isolation = '{default}'");
        execute(&mut conn, &set).unwrap();
        for (isolation, name) in LEVELS {
            let (booked, level) = book_at(&mut conn, isolation, 7).unwrap();
            assert!(booked);
            assert_eq!(level, name, "with a default of {default}");
            assert_eq!(db.locks().await, []);
            db.run("DELETE FROM booking").await;
        }
    }
}
