//! The holder of a lock that a call did not get, queried through the error.

use advisory_runtime::lease::{Error as LeaseError, Leases, Request as LeaseRequest};
use advisory_runtime::monitor::{self, HeldBy, LockHolder, State};
use advisory_runtime::{
    Error, LockKey, Mode, Request, Wait, advisory_lock, blocking, session, testing, xact,
};
use advisory_tests::bookings::{database, execute, key_of, run};
use advisory_tests::monitor::prepared;
use advisory_tests::{Database, Proxy, assert_error, assert_matches, leases, pid_of};
use diesel::connection::Connection as _;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Duration;

#[derive(LockKey)]
#[lock_key("room:<room>", name = "room")]
struct RoomLock {
    room: i64,
}

#[advisory_lock(key = "room:<room>", name = "room", wait = wait)]
async fn book(conn: &mut AsyncPgConnection, room: i64, wait: Duration) -> Result<(), Error> {
    let _ = (conn, room);
    Ok(())
}

const SHORT: Duration = Duration::from_millis(30);

async fn named(db: &Database, name: &str) -> AsyncPgConnection {
    let mut conn = db.connect().await;
    run(&mut conn, &format!("SET application_name = '{name}'")).await;
    conn
}

#[tokio::test]
async fn a_call_that_gave_up_names_the_holder() {
    let db = database().await;
    let mut holder = named(&db, "booking-service").await;
    let pid = pid_of(&mut holder).await;
    let held = xact::begin(&mut holder, RoomLock { room: 7 })
        .await
        .unwrap();
    let mut conn = db.connect().await;
    for wait in [Duration::ZERO, SHORT] {
        let error = book(&mut conn, 7, wait).await.unwrap_err();
        assert!(error.is_busy() && error.to_string().contains("`monitor::holders`"));
        let holders = monitor::holders(&mut conn, &error).await.unwrap();
        let [holder] = &holders[..] else {
            panic!("{holders:?}")
        };
        assert_eq!(
            (holder.pid(), holder.application(), holder.state()),
            (
                Some(pid),
                Some("booking-service"),
                Some(&State::IdleInTransaction)
            )
        );
        assert!(
            holder
                .held_for()
                .is_some_and(|age| age < Duration::from_secs(60))
        );
        assert_eq!(holder.lock, "room:<room>");
        let HeldBy::Backend { key, mode, .. } = &holder.held_by else {
            panic!("{holder:?}")
        };
        assert_eq!((*key, *mode), (key_of(7).into(), Mode::Exclusive));
        let line = holder.to_string();
        let begins = format!(
            "advisory lock `room:<room>` is held by process {pid} (booking-service): idle in transaction for "
        );
        assert!(
            line.starts_with(&begins) && line.contains("s, in a transaction of "),
            "{line}"
        );
    }
    // Another room is not reported.
    let error = book(&mut conn, 7, SHORT).await.unwrap_err();
    let mut other = db.connect().await;
    let beside = xact::begin(&mut other, RoomLock { room: 8 }).await.unwrap();
    assert_eq!(monitor::holders(&mut conn, &error).await.unwrap().len(), 1);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(
        monitor::holders(&mut conn, &error).await.unwrap(),
        [],
        "gone meanwhile"
    );
    beside.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn each_holder_of_each_key_is_reported() {
    let db = database().await;
    let (mut one, mut other) = (named(&db, "one").await, named(&db, "other").await);
    let (mut third, mut conn) = (named(&db, "third").await, db.connect().await);
    let shared = || Request::new(1).shared();
    let one = session::acquire(&mut one, shared()).await.unwrap();
    let other = session::acquire(&mut other, shared()).await.unwrap();
    let third = xact::begin(&mut third, (1, 2)).await.unwrap();
    let request = Request::all([advisory_runtime::Key::from(1), (1, 2).into()]);
    let missed = session::acquire(&mut conn, request.wait(Wait::Never)).await;
    let error = missed.unwrap_err();
    let holders = monitor::holders(&mut conn, &error).await.unwrap();
    let mut names: Vec<_> = holders.iter().filter_map(LockHolder::application).collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "other", "third"]);
    // For a session outside a transaction: since its last statement, at least.
    let idle = holders.iter().find(|it| it.application() == Some("one"));
    let idle = idle.unwrap();
    assert_eq!(idle.state(), Some(&State::Idle));
    assert!(idle.held_for().is_some(), "{idle:?}");
    for held in [one, other, third] {
        held.finish(Ok::<_, Error>(())).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_asked_for_an_error_of_another_kind() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.reset();
    for error in testing::lock_errors() {
        assert_eq!(monitor::holders(&mut conn, &error).await.unwrap(), []);
    }
    assert_eq!(proxy.round_trips(), 0);
}

#[tokio::test]
async fn inside_a_transaction_it_answers_unless_that_has_failed() {
    let db = database().await;
    let (mut holder, mut conn) = (named(&db, "holder").await, db.connect().await);
    let held = xact::begin(&mut holder, RoomLock { room: 7 })
        .await
        .unwrap();
    let mut busy = None;
    let result = conn.transaction::<(), Error, _>(async |conn| {
        let error = book(conn, 7, SHORT).await.unwrap_err();
        assert_eq!(monitor::holders(conn, &error).await?.len(), 1);
        execute(conn, "SELECT 1 FROM no_such_table")
            .await
            .unwrap_err();
        let asked = monitor::holders(conn, &error).await.unwrap_err();
        busy = Some(error);
        Err(asked)
    });
    assert_error!(result.await, InFailedTransaction { lock, .. } if lock == "room:<room>");
    let busy = busy.unwrap();
    assert_eq!(
        monitor::holders(&mut conn, &busy).await.unwrap().len(),
        1,
        "rolled back"
    );
    drop(xact::begin(&mut conn, 8).await.unwrap());
    assert_error!(monitor::holders(&mut conn, &busy).await, BrokenConnection);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn other_roles_sessions_are_hidden_without_the_right() {
    let db = database().await;
    let role = format!("holders_{}", std::process::id());
    db.run(&format!("CREATE ROLE {role}")).await;
    let (mut holder, mut conn) = (named(&db, "holder").await, db.connect().await);
    let pid = pid_of(&mut holder).await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    run(&mut conn, &format!("SET ROLE {role}")).await;
    let error = book(&mut conn, 7, SHORT).await.unwrap_err();
    let holders = monitor::holders(&mut conn, &error).await.unwrap();
    let texts: Vec<String> = holders.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [format!(
            "advisory lock `room:<room>` is held by process {pid} (holder): its state is shown to members of `pg_monitor` only"
        )]
    );
    assert_eq!((holders[0].pid(), holders[0].state()), (Some(pid), None));
    held.finish(Ok::<_, Error>(())).await.unwrap();
    drop(conn);
    db.run(&format!("DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_blocking_connection_it_is_the_same() {
    let db = database().await;
    let (mut holder, mut conn) = (db.establish(), db.establish());
    let held = blocking::session::acquire(&mut holder, 7).unwrap();
    let request = Request::new(7).wait(Wait::Never);
    let error = blocking::session::acquire(&mut conn, request).unwrap_err();
    let holders = blocking::monitor::holders(&mut conn, &error).unwrap();
    assert_eq!(holders.len(), 1);
    assert_eq!(
        (&*holders[0].lock, holders[0].state()),
        ("7", Some(&State::Idle))
    );
    let result = conn.transaction::<(), Error, _>(|conn| {
        advisory_tests::blocking::execute(conn, "SELECT 1 FROM no_such_table").unwrap_err();
        let asked = blocking::monitor::holders(conn, &error).unwrap_err();
        assert_error!(asked, InFailedTransaction);
        Err(asked)
    });
    result.unwrap_err();
    held.finish(Ok::<_, Error>(())).unwrap();
    assert_eq!(blocking::monitor::holders(&mut conn, &error).unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_lease_is_in_its_row() {
    let db = leases::database().await;
    let leases = Leases::new(db.deadpool(2));
    let key = || LeaseRequest::text("report:2026-11");
    let held = leases.acquire(key()).await.unwrap();
    let (mut conn, mut sync) = (db.connect().await, db.establish());
    for wait in [Wait::Never, Wait::For(SHORT)] {
        let error = leases.acquire(key().wait(wait)).await.unwrap_err();
        let holders = monitor::holders(&mut conn, &error).await.unwrap();
        let [holder] = &holders[..] else {
            panic!("{holders:?}")
        };
        let HeldBy::Lease(row) = &holder.held_by else {
            panic!("{holder:?}")
        };
        assert_eq!((row.token, holder.pid()), (held.lease().token(), None));
        assert_eq!(holder.application(), Some(&*row.holder));
        assert!(holder.held_for().is_some());
        let line = holder.to_string();
        assert!(
            line.starts_with("lease `") && line.contains("and expires in "),
            "{line}"
        );
        assert_eq!(
            blocking::monitor::holders(&mut sync, &error).unwrap().len(),
            1
        );
    }
    let error = leases.acquire(key().wait(Wait::Never)).await.unwrap_err();
    held.finish(Ok::<_, LeaseError>(())).await.unwrap();
    assert_eq!(monitor::holders(&mut conn, &error).await.unwrap(), []);
}

#[tokio::test]
async fn a_prepared_transaction_is_shown_by_its_identifier() {
    let db = database().await;
    let Some(mut conn) = prepared(&db, "left behind").await else {
        return;
    };
    let missed = xact::begin(&mut conn, Request::new(5).wait(Wait::Never)).await;
    let error = missed.unwrap_err();
    let holders = monitor::holders(&mut conn, &error).await.unwrap();
    run(&mut conn, "ROLLBACK PREPARED 'left behind'").await;
    assert_matches!(
        &holders[..],
        [holder] if holder.pid().is_none() && holder.held_for().is_some()
    );
    let line = holders[0].to_string();
    let begins = "advisory lock `5` is held by the prepared transaction `left behind` of `";
    assert!(line.starts_with(begins), "{line}");
    assert_eq!(monitor::holders(&mut conn, &error).await.unwrap(), []);
}
