//! The monitor with the rights of a role, protection against forged names, and the same on blocking
//! Diesel.

use advisory_runtime::blocking;
use advisory_runtime::monitor::{self, Activity, HolderId, Locks, Names, Scope, Signal, State};
use advisory_tests::bookings::{database, run};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::monitor::{backend, lock, look, prepared, until_waiters, waits};
use advisory_tests::pauses::pause_thread;
use advisory_tests::{Database, assert_matches, pid_of};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

/// A role that only this test uses: roles belong to the server, not to the database.
async fn role(db: &Database, name: &str) -> String {
    let role = format!("monitor_{name}_{}", std::process::id());
    db.run(&format!("CREATE ROLE {role} LOGIN")).await;
    role
}

async fn remove(db: &Database, roles: &[&str]) {
    for role in roles {
        db.run(&format!("DROP ROLE {role}")).await;
    }
}

/// A connection that has logged in as that role: a session that changes its role later still counts
/// as its own.
async fn connect_as(db: &Database, role: &str) -> AsyncPgConnection {
    let (scheme, address) = db.url().split_once("://").unwrap();
    let address = address.rsplit_once('@').map_or(address, |(_, host)| host);
    AsyncPgConnection::establish(&format!("{scheme}://{role}@{address}"))
        .await
        .unwrap()
}

async fn look_as(conn: &mut AsyncPgConnection) -> Locks {
    monitor::locks(conn, &Names::none()).await.unwrap()
}

#[tokio::test]
async fn without_pg_monitor_waits_are_seen_but_not_queries_or_names() {
    let db = Database::create().await;
    let (watcher, app) = (role(&db, "watcher").await, role(&db, "app").await);
    let mut holder = connect_as(&db, &app).await;
    let mut waiter = connect_as(&db, &app).await;
    let (held_by, awaited_by) = (pid_of(&mut holder).await, pid_of(&mut waiter).await);
    for conn in [&mut holder, &mut waiter] {
        run(conn, "SET application_name = 'api'").await;
    }
    let take = "/*advisory:a:<x>*/;SELECT pg_catalog.pg_advisory_lock(5)";
    holder.batch_execute(take).await.unwrap();
    let waiting = waits(waiter, take);
    until_waiters(&db, 1).await;
    let called = |locks: &Locks| -> Vec<String> {
        let names = lock(locks, 5).names.iter();
        names.map(|name| name.key.clone()).collect()
    };

    let mut conn = connect_as(&db, &watcher).await;
    let seen = look_as(&mut conn).await;
    assert_eq!((seen.sees_all, &*seen.role), (false, &*watcher));
    for pid in [held_by, awaited_by] {
        let shown = backend(&seen, pid);
        assert_eq!(shown.application, "api");
        let Activity::Hidden { needs, .. } = &shown.activity else {
            panic!("{shown:?}");
        };
        assert_eq!(*needs, "pg_monitor");
    }
    let waiter = &lock(&seen, 5).waiters[0];
    assert_eq!(waiter.pid, awaited_by);
    assert_eq!(waiter.held_by, [held_by]);
    assert!(waiter.waited > Duration::ZERO);
    // The names are in the queries, unless the caller knows the key.
    assert_eq!(called(&seen), [""; 0]);
    let known = Names::none().with_key(5);
    let seen = monitor::locks(&mut conn, &known).await.unwrap();
    assert_eq!(called(&seen), ["5"]);
    let seen = look_as(&mut connect_as(&db, &app).await).await;
    assert!(!seen.sees_all);
    assert_eq!(called(&seen), ["a:<x>"]);

    for enough in ["pg_monitor", "pg_read_all_stats"] {
        db.run(&format!("GRANT {enough} TO {watcher}")).await;
        let seen = look_as(&mut conn).await;
        assert!(seen.sees_all, "{enough}");
        assert_eq!(called(&seen), ["a:<x>"], "{enough}");
        assert!(
            matches!(&backend(&seen, held_by).activity, Activity::Visible { query, .. } if query.contains("lock(5)")),
            "{enough}: {seen:?}"
        );
        db.run(&format!("REVOKE {enough} FROM {watcher}")).await;
    }
    // It always sees its own.
    run(&mut conn, "SELECT pg_advisory_lock(6)").await;
    let own = pid_of(&mut conn).await;
    let seen = look_as(&mut conn).await;
    assert!(!backend(&seen, own).activity.is_hidden(), "{seen:?}");
    drop((holder, conn));
    drop(waiting.await.unwrap());
    db.until_no_locks().await;
    remove(&db, &[&watcher, &app]).await;
}

#[tokio::test]
async fn a_waiter_is_cancelled_and_a_terminated_holder_releases() {
    let db = Database::create().await;
    let (mut holder, mut waiter, mut conn) =
        (db.connect().await, db.connect().await, db.connect().await);
    let (held_by, awaited_by) = (pid_of(&mut holder).await, pid_of(&mut waiter).await);
    run(&mut holder, "SELECT pg_advisory_lock(5)").await;
    let waiting = waits(waiter, "SELECT pg_advisory_lock(5)");
    db.until_waiting(5).await;
    let seen = look(&db).await;

    let waits = backend(&seen, awaited_by).clone();
    let cancelled = monitor::cancel(&mut conn, &waits).await;
    assert_eq!(cancelled.unwrap(), Signal::Done);
    let mut waiter = waiting.await.unwrap();
    run(&mut waiter, "SELECT 1").await;
    db.until_no_waiters(5).await;

    // A session-level lock outlives a cancelled statement.
    let holds = backend(&seen, held_by).clone();
    let cancelled = monitor::cancel(&mut conn, &holds).await;
    assert_eq!(cancelled.unwrap(), Signal::Done);
    assert_eq!(look(&db).await.locks.len(), 1);
    let terminated = monitor::terminate(&mut conn, &holds).await;
    assert_eq!(terminated.unwrap(), Signal::Done);
    assert_eq!(look(&db).await.locks, []);
    for again in [
        monitor::terminate(&mut conn, &holds).await,
        monitor::cancel(&mut conn, &holds).await,
    ] {
        assert_eq!(again.unwrap(), Signal::Gone);
    }
    run(&mut waiter, "SELECT 1").await;
}

#[tokio::test]
async fn a_role_that_may_not_end_a_session_learns_which_may() {
    let db = Database::create().await;
    let (watcher, app) = (role(&db, "signals").await, role(&db, "signalled").await);
    let mut root = db.connect().await;
    let mut holder = connect_as(&db, &app).await;
    let mut conn = connect_as(&db, &watcher).await;
    let (root_pid, app_pid) = (pid_of(&mut root).await, pid_of(&mut holder).await);
    run(&mut root, "SELECT pg_advisory_lock(5)").await;
    run(&mut holder, "SELECT pg_advisory_lock(6)").await;
    let refused = |needs| format!("Refused {{ needs: {needs:?} }}");
    let seen = look_as(&mut conn).await;
    for (pid, needs) in [(root_pid, "superuser"), (app_pid, "pg_signal_backend")] {
        for end in [
            monitor::cancel(&mut conn, backend(&seen, pid)).await,
            monitor::terminate(&mut conn, backend(&seen, pid)).await,
        ] {
            assert_eq!(format!("{:?}", end.unwrap()), refused(needs));
        }
    }
    assert_eq!(look(&db).await.locks.len(), 2, "nothing was ended");
    db.run(&format!("GRANT pg_signal_backend TO {watcher}"))
        .await;
    let done = monitor::terminate(&mut conn, backend(&seen, app_pid)).await;
    assert_eq!(done.unwrap(), Signal::Done);
    let root_still = monitor::terminate(&mut conn, backend(&seen, root_pid)).await;
    assert_eq!(format!("{:?}", root_still.unwrap()), refused("superuser"));
    drop((conn, holder));
    db.run(&format!("REVOKE pg_signal_backend FROM {watcher}"))
        .await;
    remove(&db, &[&watcher, &app]).await;
}

/// Objects with the names that the monitor's queries use, which return nothing or the wrong thing.
const HOSTILE: &str = "
    CREATE VIEW public.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false;
    CREATE VIEW public.pg_database AS SELECT * FROM pg_catalog.pg_database WHERE false;
    CREATE VIEW public.pg_roles AS SELECT * FROM pg_catalog.pg_roles WHERE false;
    CREATE VIEW public.pg_prepared_xacts AS SELECT * FROM pg_catalog.pg_prepared_xacts WHERE false;
    CREATE FUNCTION public.pg_blocking_pids(int) RETURNS int[] LANGUAGE sql AS $$SELECT '{666}'::int[]$$;
    CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT '-infinity'::timestamptz$$;
    CREATE FUNCTION public.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT '-infinity'::timestamptz$$;
    CREATE FUNCTION public.current_database() RETURNS name LANGUAGE sql AS $$SELECT 'none'::name$$;
    CREATE FUNCTION public.pg_terminate_backend(int, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE FUNCTION public.pg_cancel_backend(int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE FUNCTION public.pg_has_role(name, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE FUNCTION public.pg_has_role(oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE FUNCTION public.host(inet) RETURNS text LANGUAGE sql AS $$SELECT 'evil'::text$$;
    CREATE FUNCTION public.date_part(text, interval) RETURNS float8 LANGUAGE sql AS $$SELECT -1::float8$$;
    CREATE FUNCTION public.never(int4, int4) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.never, LEFTARG = int4, RIGHTARG = int4);
    CREATE FUNCTION public.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.never, LEFTARG = text, RIGHTARG = text);
    CREATE FUNCTION public.never(int8, int8) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.never, LEFTARG = int8, RIGHTARG = int8);
    CREATE FUNCTION public.never(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.never, LEFTARG = oid, RIGHTARG = oid);
    CREATE FUNCTION public.never(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR public.= (FUNCTION = public.never, LEFTARG = name, RIGHTARG = name);
    CREATE DOMAIN public.int8 AS pg_catalog.text CHECK (false);
    CREATE DOMAIN public.int4 AS pg_catalog.text CHECK (false);
    CREATE DOMAIN public.float8 AS pg_catalog.text CHECK (false);
    CREATE DOMAIN public.text AS pg_catalog.int4 CHECK (false);
    CREATE DOMAIN public.name AS pg_catalog.int4 CHECK (false);
";

#[tokio::test]
async fn a_hostile_search_path_changes_nothing() {
    let db = database().await;
    db.run(HOSTILE).await;
    let (mut holder, mut waiter, mut conn) =
        (db.connect().await, db.connect().await, db.connect().await);
    let (held_by, awaited_by) = (pid_of(&mut holder).await, pid_of(&mut waiter).await);
    run(&mut holder, "SELECT pg_advisory_lock(5)").await;
    let waiting = waits(waiter, "SELECT pg_advisory_lock(5)");
    until_waiters(&db, 1).await;
    run(&mut conn, "SET search_path = public, pg_catalog").await;
    let seen = look_as(&mut conn).await;
    let shown = lock(&seen, 5);
    assert_eq!(shown.holders[0].id, HolderId::Backend(held_by));
    assert_eq!(shown.waiters[0].held_by, [held_by]);
    assert!(shown.waiters[0].waited > Duration::ZERO);
    assert!(seen.sees_all);
    let waiter = backend(&seen, awaited_by);
    assert_matches!(
        &waiter.activity,
        Activity::Visible { state: State::Active, transaction_age: Some(age), .. } if *age > Duration::ZERO
    );
    let ended = monitor::cancel(&mut conn, waiter).await.unwrap();
    assert_eq!(ended, Signal::Done);
    drop(waiting.await.unwrap());
    let ended = monitor::terminate(&mut conn, backend(&seen, held_by)).await;
    assert_eq!(ended.unwrap(), Signal::Done);
    assert_eq!(look(&db).await.locks, []);
}

#[tokio::test]
async fn blocking_diesel_sees_and_ends_the_same() {
    let db = Database::create().await;
    let (mut holder, waiter) = (db.connect().await, db.connect().await);
    run(&mut holder, "SELECT pg_advisory_lock(5, -6)").await;
    let waiting = waits(waiter, "SELECT pg_advisory_lock_shared(5, -6)");
    until_waiters(&db, 1).await;
    let pid = pid_of(&mut holder).await;
    let awaited = look(&db).await;
    let mut conn = db.establish();
    let (seen, ended, left) = spawn_blocking(move || {
        let names = Names::none();
        let seen = blocking::monitor::locks(&mut conn, &names).unwrap();
        let waiter = seen.locks[0].waiters[0].pid;
        let cancelled = blocking::monitor::cancel(&mut conn, seen.backend(waiter).unwrap());
        // It could get the lock before its session has ended.
        let waits = |locks: &Locks| locks.locks.iter().any(|lock| !lock.waiters.is_empty());
        while waits(&blocking::monitor::locks(&mut conn, &names).unwrap()) {
            pause_thread();
        }
        let terminated = blocking::monitor::terminate(&mut conn, seen.backend(pid).unwrap());
        let ended = [cancelled, terminated];
        let left = blocking::monitor::locks(&mut conn, &names).unwrap();
        (seen, ended.map(Result::unwrap), left)
    })
    .await
    .unwrap();
    let shape = |locks: &Locks| {
        let lock = lock(locks, (5, -6));
        let holders = lock.holders.iter();
        let holders = holders.map(|it| (it.id.clone(), it.mode, it.scope));
        let holders: Vec<_> = holders.collect();
        (holders, lock.waiters[0].held_by.clone())
    };
    assert_eq!(shape(&seen), shape(&awaited));
    assert_eq!(ended, [Signal::Done; 2]);
    assert_eq!(left.locks, []);
    drop(waiting.await.unwrap());
}

/// A lock without a session: its transaction was prepared, and the client that should commit it has
/// died.
#[tokio::test]
async fn a_prepared_transaction_is_shown_as_the_holder() {
    let db = Database::create().await;
    let Some(mut conn) = prepared(&db, "forgotten").await else {
        return;
    };
    let waiting = waits(db.connect().await, "SELECT pg_advisory_lock(5)");
    db.until_waiting(5).await;
    let seen = look(&db).await;
    let shown = lock(&seen, 5);
    let [holder] = &shown.holders[..] else {
        panic!("{shown:?}");
    };
    assert_matches!(
        &holder.id,
        HolderId::Prepared { gid, owner, .. } if gid == "forgotten" && *owner == seen.role
    );
    assert_eq!(holder.scope, Some(Scope::Xact));
    assert_eq!(shown.waiters[0].held_by, [0]);
    run(&mut conn, "ROLLBACK PREPARED 'forgotten'").await;
    drop(waiting.await.unwrap());
}
