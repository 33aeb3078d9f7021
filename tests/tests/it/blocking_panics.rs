//! Blocking Diesel: a panic that is caught above or below the connection leaves no lock and no open
//! transaction, and the next transaction really commits.

use crate::calls::book_blocking as book;
use advisory_runtime::blocking::{Connection, session, xact};
use advisory_runtime::{Isolation, Request, advisory_lock};
use advisory_tests::blocking::{execute, finish, held_by, insert, pid_of};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::{Database, assert_error};
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::result::Error as DieselError;
use diesel::{Connection as _, ExecuteCopyFromDsl, QueryResult};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Panics {
    Plainly,
    InATransaction,
    InANestedCall,
    AfterAFailedStatement,
    AfterACommitByHand,
    AfterABeginByHand,
    InACopy,
}

use Panics::{
    AfterABeginByHand, AfterACommitByHand, AfterAFailedStatement, InACopy, InANestedCall,
    InATransaction, Plainly,
};

#[derive(Clone, Copy, Debug)]
enum Scope {
    Xact,
    Strict,
    Session,
}

fn cases() -> impl Iterator<Item = (Scope, Panics)> {
    let inside = [Plainly, InATransaction, InANestedCall, InACopy];
    let by_hand = [AfterAFailedStatement, AfterACommitByHand, AfterABeginByHand];
    let panics = inside.into_iter().chain(by_hand);
    panics.flat_map(|panics| {
        [Scope::Xact, Scope::Strict, Scope::Session].map(|scope| (scope, panics))
    })
}

diesel::table! {
    booking (room) {
        room -> BigInt,
        guest -> Text,
    }
}

fn panic_in(conn: &mut PgConnection, panics: Panics) -> QueryResult<()> {
    match panics {
        Plainly => {}
        InATransaction => conn.transaction::<(), DieselError, _>(|conn| {
            insert(conn, 7, "half done")?;
            panic!("the body's own panic")
        })?,
        InANestedCall => nested(conn, 7)?,
        AfterAFailedStatement => {
            conn.batch_execute("BEGIN; SELECT 1 FROM no_such_table")
                .unwrap_err();
        }
        AfterACommitByHand => conn.batch_execute("COMMIT")?,
        AfterABeginByHand => {
            conn.batch_execute("BEGIN; INSERT INTO booking VALUES (7, 'half done')")?;
        }
        InACopy => {
            let copy = diesel::copy_from(booking::table);
            copy.from_raw_data(booking::table, |_| -> QueryResult<()> {
                panic!("the body's own panic")
            })
            .execute(conn)?;
        }
    }
    panic!("the body's own panic")
}

/// On a key that is held already: inside a stricter level any other key would be refused.
#[advisory_lock(key = "room:<room>", name = "room")]
fn nested(conn: &mut PgConnection, room: i64) -> QueryResult<()> {
    insert(conn, room, "half done")?;
    panic!("the body's own panic")
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn in_xact<C: Connection>(conn: &mut C, room: i64, panics: Panics) -> QueryResult<()> {
    panic_in(conn.pg(), panics)
}

#[advisory_lock(key = "room:<room>", name = "room", isolation = "serializable")]
fn in_strict<C: Connection>(conn: &mut C, room: i64, panics: Panics) -> QueryResult<()> {
    panic_in(conn.pg(), panics)
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "session")]
fn in_session<C: Connection>(conn: &mut C, room: i64, panics: Panics) -> QueryResult<()> {
    panic_in(conn.pg(), panics)
}

fn call<C: Connection>(conn: &mut C, scope: Scope, panics: Panics) -> QueryResult<()> {
    match scope {
        Scope::Xact => in_xact(conn, 7, panics),
        Scope::Strict => in_strict(conn, 7, panics),
        Scope::Session => in_session(conn, 7, panics),
    }
}

fn is_caught<C: Connection>(conn: &mut C, scope: Scope, panics: Panics) -> bool {
    catch_unwind(AssertUnwindSafe(|| call(conn, scope, panics))).is_err()
}

/// At this moment no lock is left, and the next transaction and the next locked call commit.
async fn goes_on(conn: &mut PgConnection, db: &Database, after: &str) {
    assert_eq!(db.locks().await, [], "{after}");
    assert_eq!(held_by(conn).unwrap(), 0, "{after}");
    assert_eq!(committed(db, 7).await, 0, "{after}");
    conn.transaction::<_, DieselError, _>(|conn| insert(conn, 1, "next"))
        .unwrap_or_else(|error| panic!("{after}: {error:?}"));
    assert!(book(conn, 2, "next").unwrap(), "{after}");
    let rows = [committed(db, 1).await, committed(db, 2).await];
    assert_eq!(rows, [1, 1], "{after}");
    db.run("DELETE FROM booking").await;
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caught_below_the_connection_it_stays_usable() {
    let db = database().await;
    let mut conn = db.establish();
    let pid = pid_of(&mut conn);
    for (scope, panics) in cases() {
        assert!(is_caught(&mut conn, scope, panics));
        goes_on(&mut conn, &db, &format!("{scope:?}, {panics:?}")).await;
        assert_eq!(
            pid_of(&mut conn),
            pid,
            "{scope:?}, {panics:?}: the same session"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caught_below_a_pooled_connection_its_pool_works() {
    let db = database().await;
    let pool = db.r2d2(1);
    for (scope, panics) in cases() {
        let after = format!("{scope:?}, {panics:?}");
        let mut conn = pool.get().unwrap();
        assert!(is_caught(&mut conn, scope, panics));
        goes_on(&mut conn, &db, &after).await;
        assert!(is_caught(&mut conn, scope, panics));
        drop(conn);
        goes_on(&mut pool.get().unwrap(), &db, &after).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caught_above_a_pooled_connection_its_pool_works() {
    let db = database().await;
    let pool = db.r2d2(1);
    for (scope, panics) in cases() {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            call(&mut pool.get().unwrap(), scope, panics)
        }));
        assert!(caught.is_err());
        let after = format!("{scope:?}, {panics:?}");
        assert_eq!(db.locks().await, [], "{after}");
        goes_on(&mut pool.get().unwrap(), &db, &after).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_connection_that_the_function_took_from_a_pool() {
    #[advisory_lock(key = "room:<room>", name = "room", conn = pool.get()?)]
    fn work(
        pool: &diesel::r2d2::Pool<diesel::r2d2::ConnectionManager<PgConnection>>,
        room: i64,
    ) -> anyhow::Result<()> {
        insert(conn, room, "half done")?;
        panic!("the body's own panic")
    }
    let db = database().await;
    let pool = db.r2d2(1);
    assert!(catch_unwind(AssertUnwindSafe(|| work(&pool, 7))).is_err());
    goes_on(&mut pool.get().unwrap(), &db, "a panic").await;
}

/// The panic is caught between a nested call and the outer transaction.
#[tokio::test(flavor = "multi_thread")]
async fn caught_inside_a_transaction_only_the_lock_is_released() {
    let db = database().await;
    let mut conn = db.establish();
    for panics in [Plainly, InATransaction, InANestedCall, InACopy] {
        conn.transaction::<_, DieselError, _>(|conn| {
            insert(conn, 1, "before")?;
            assert!(is_caught(conn, Scope::Xact, panics));
            assert_eq!(held_by(conn)?, 0, "{panics:?}: freed with the savepoint");
            insert(conn, 1, "after")
        })
        .unwrap_or_else(|error| panic!("{panics:?}: {error:?}"));
        assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [2, 0]);
        db.run("DELETE FROM booking").await;
        goes_on(&mut conn, &db, &format!("{panics:?}, nested")).await;
    }
}

/// The body has committed the outer transaction by hand, so nothing more may be written.
#[tokio::test(flavor = "multi_thread")]
async fn caught_after_the_body_has_ended_it_nothing_is_written() {
    let db = database().await;
    let mut conn = db.establish();
    let result = conn.transaction::<_, DieselError, _>(|conn| {
        assert!(is_caught(conn, Scope::Xact, AfterACommitByHand));
        insert(conn, 1, "on its own").unwrap_err();
        Ok(())
    });
    result.unwrap_err();
    assert_eq!(committed(&db, 1).await, 0);
    assert_eq!(db.locks().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_unwound_rolls_back_and_releases() {
    let db = database().await;
    let mut conn = db.establish();
    let requests = [
        Request::all([5, 6]),
        Request::all([5, 6]).shared(),
        Request::all([5, 6]).isolation(Isolation::RepeatableRead),
    ];
    for request in requests {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let mut held = xact::begin(&mut conn, request.clone()).unwrap();
            insert(held.conn(), 7, "half done").unwrap();
            panic!("between begin and finish")
        }));
        assert!(caught.is_err());
        goes_on(&mut conn, &db, &format!("{request:?}")).await;
    }
    let bounded = Request::all([5, 6]).max_hold(Duration::from_secs(600));
    for request in [Request::all([5, 6]), Request::all([5, 6]).shared(), bounded] {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let mut held = session::acquire(&mut conn, request.clone()).unwrap();
            assert_eq!(held_by(held.conn()).unwrap(), 2);
            panic!("between acquire and release")
        }));
        assert!(caught.is_err());
        goes_on(&mut conn, &db, &format!("session {request:?}")).await;
    }
}

/// The thread's list of locks is correct after the body, even after a panic.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_panic_the_thread_has_no_lock() {
    let db = database().await;
    let (mut conn, mut other, mut holder) = (db.establish(), db.establish(), db.establish());
    assert!(is_caught(&mut conn, Scope::Xact, Plainly));
    assert_eq!(db.locks().await, []);
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    execute(&mut other, "SET lock_timeout = '30ms'").unwrap();
    assert_error!(book(&mut other, 7, "Ada"), TimedOut);
    finish(held);
}
