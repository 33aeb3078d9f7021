//! The findings of `doctor` about a whole server: its settings, its lock table, and that it is a
//! standby.

use advisory_tests::{Database, OwnServer, Standby, left_out, owns_server, pid_of};
use diesel_async::{AsyncConnection, AsyncPgConnection};

use crate::diagnosis::{doctor, findings, fix, level, message, problems};
use crate::live_view::{does, holder, shows};
use crate::programs::{assert_has, assert_starts, program_of, site};

/// A test's own server with room for few locks.
#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_whole_server_are_mended_by_their_statements() {
    if !owns_server() {
        return left_out("a server's settings", "the server is somebody's own");
    }
    let server = OwnServer::start().await;
    let mut admin = AsyncPgConnection::establish(server.url()).await.unwrap();
    for setting in [
        "deadlock_timeout = '1min'",
        "log_lock_waits = off",
        "max_connections = 20",
        "max_prepared_transactions = 5",
        "max_locks_per_transaction = 10",
    ] {
        does(&mut admin, &format!("ALTER SYSTEM SET {setting}")).await;
    }
    drop(admin);
    server.stop("fast").await;
    server.start_again().await;

    let mut invoices = AsyncPgConnection::establish(server.url()).await.unwrap();
    let prepare = "BEGIN; SELECT pg_advisory_xact_lock(key) FROM generate_series(-20, -1) AS key; PREPARE TRANSACTION 'invoice-1'";
    does(&mut invoices, prepare).await;
    let before = findings(server.url(), &[]).await;
    let mut admin = AsyncPgConnection::establish(server.url()).await.unwrap();
    for name in ["deadlock_timeout", "log_lock_waits"] {
        assert_eq!(level(&before, name), "advice", "{name}");
        for statement in fix(&before, name) {
            does(&mut admin, &statement).await;
        }
    }
    // The reported number of free places can be locked, all in one call.
    let room = message(&before, "lock_table");
    assert_eq!(level(&before, "lock_table"), "fine", "{room}");
    let left: i64 = room
        .rsplit_once("the remaining ")
        .unwrap()
        .1
        .parse()
        .unwrap();
    assert!((300..1_000).contains(&left), "{room}");
    let take =
        |keys: i64| format!("SELECT pg_advisory_lock(key) FROM generate_series(1, {keys}) AS key");
    does(&mut admin, &take(left)).await;
    // The prepared transaction is young, however busy the machine is.
    let young = ["--older-than", "1h"];
    let full = findings(server.url(), &young).await;
    assert_eq!(problems(&full), ["lock_table"]);
    let holder = format!(
        "The largest holders: {} in postgres: ",
        pid_of(&mut admin).await
    );
    let said = message(&full, "lock_table");
    assert_has(&said, &holder);
    shows(13, &doctor(server.url(), &young).await.out);
    // A call with a slice takes more locks than there are places.
    let slice = site(
        "shop",
        "book",
        7,
        &["room:<ids*>"],
        &["pattern room:<ids: uint>"],
    );
    let program = program_of("lock-table.rmeta", &[slice]);
    let called = [&young[..], &["--artifact", &program]].concat();
    let called = findings(server.url(), &called).await;
    let room = message(&called, "lock_table");
    assert_has(
        &room,
        "the remaining 0, and one call of `book` can take 64; without",
    );
    let prepared = "; prepared transaction 'invoice-1' in postgres: ";
    assert_has(&said, prepared);
    assert_has(&said, ", of them 20 advisory");
    assert_has(&said, &format!(", of them {left} advisory"));
    does(&mut admin, "SELECT pg_advisory_unlock_all()").await;
    does(&mut admin, &take(left * 6 / 10)).await;
    let half = findings(server.url(), &young).await;
    assert_eq!(problems(&half), [""; 0]);
    assert_eq!(level(&half, "lock_table"), "advice");
    for name in ["deadlock_timeout", "log_lock_waits"] {
        assert_eq!(level(&half, name), "fine", "{name}");
    }
    for statement in fix(&half, "lock_table") {
        does(&mut admin, &statement).await;
    }
    drop(admin);
    server.stop("fast").await;
    server.start_again().await;
    let after = findings(server.url(), &[]).await;
    assert_eq!(level(&after, "lock_table"), "fine");

    server.become_standby().await;
    let standby = findings(server.url(), &young).await;
    assert_eq!(problems(&standby), ["standby"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_a_problem() {
    let standby = Standby::start().await;
    let findings = findings(standby.url(), &[]).await;
    assert_eq!(problems(&findings), ["standby"]);
}

/// Two servers that send each other the rows of one table; neither sees the other's locks.
#[tokio::test(flavor = "multi_thread")]
async fn two_way_logical_replication_is_a_problem() {
    if !owns_server() {
        return left_out("logical replication", "the server is somebody's own");
    }
    let servers = [OwnServer::start().await, OwnServer::start().await];
    let mut admins = Vec::new();
    for server in &servers {
        let mut admin = AsyncPgConnection::establish(server.url()).await.unwrap();
        does(&mut admin, "ALTER SYSTEM SET wal_level = logical").await;
        drop(admin);
        server.stop("fast").await;
        server.start_again().await;
        let mut admin = AsyncPgConnection::establish(server.url()).await.unwrap();
        does(&mut admin, "CREATE TABLE booking (id bigint PRIMARY KEY)").await;
        does(&mut admin, "CREATE PUBLICATION sent FOR TABLE booking").await;
        admins.push(admin);
    }
    let name = "logical_replication";
    let [one, other] = &servers;
    assert_eq!(level(&findings(one.url(), &[]).await, name), "fine");
    // Nothing is inserted, so nothing goes round in circles.
    let subscribe = |from: &OwnServer| {
        format!(
            "CREATE SUBSCRIPTION received CONNECTION '{}' PUBLICATION sent WITH (copy_data = false)",
            from.url()
        )
    };
    does(&mut admins[0], "DROP PUBLICATION sent").await;
    does(&mut admins[0], &subscribe(other)).await;
    let one_way = findings(one.url(), &[]).await;
    assert_eq!(level(&one_way, name), "advice", "{one_way:#?}");
    assert_starts(
        &message(&one_way, name),
        "1 table (public.booking) is received",
    );

    does(&mut admins[0], "CREATE PUBLICATION sent FOR TABLE booking").await;
    does(&mut admins[1], &subscribe(one)).await;
    for server in &servers {
        let two_way = findings(server.url(), &[]).await;
        assert_eq!(problems(&two_way), [name], "{two_way:#?}");
        assert_starts(
            &message(&two_way, name),
            "1 table (public.booking) is received from another server and published",
        );
    }
    for admin in &mut admins {
        does(admin, "SELECT 1 / pg_try_advisory_lock(7)::int").await;
        does(admin, "ALTER SUBSCRIPTION received DISABLE").await;
    }
    assert_eq!(level(&findings(one.url(), &[]).await, name), "fine");
}

/// Over TCP, where the advice mentions the operating system's two hours.
#[tokio::test(flavor = "multi_thread")]
async fn keepalives_are_advised_over_tcp() {
    if !owns_server() {
        return left_out("a server on a port", "the server is somebody's own");
    }
    let (server, address) = OwnServer::start_on_a_port().await.unwrap();
    let before = findings(&address, &[]).await;
    let said = message(&before, "keepalives");
    assert_eq!(level(&before, "keepalives"), "advice", "{said}");
    let mut admin = AsyncPgConnection::establish(server.url()).await.unwrap();
    for statement in fix(&before, "keepalives") {
        does(&mut admin, &statement).await;
    }
    let after = findings(&address, &[]).await;
    assert_eq!(level(&after, "keepalives"), "fine");
    assert_starts(&message(&after, "keepalives"), "2m00s: ");
}

/// Without `track_activities` the server does not record which sessions are idle.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_not_recorded_are_not_called_fine() {
    let db = Database::create().await;
    let names = ["idle_sessions", "stranded_locks"];
    let fine = findings(db.url(), &[]).await;
    for name in names {
        assert_eq!(level(&fine, name), "fine", "{fine:#?}");
    }
    let sql = "SET track_activities = off; BEGIN; SELECT pg_advisory_xact_lock(5)";
    let held = holder(&db, "job", sql).await;
    let unknown = findings(db.url(), &[]).await;
    for name in names {
        assert_eq!(level(&unknown, name), "unknown", "{unknown:#?}");
        let message = message(&unknown, name);
        assert_has(&message, "1 session with advisory locks may be idle");
        let set = "ALTER SYSTEM SET track_activities = on;";
        assert_eq!(fix(&unknown, name), [set, "SELECT pg_reload_conf();"]);
    }
    drop(held);
}
