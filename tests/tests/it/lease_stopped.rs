//! A lease whose holder's process is killed, or stopped and resumed, also inside a fenced
//! transaction.
//!
//! The holder is this program, started again, as in `stopped`.

use advisory_runtime::lease::{Error, Lease, Leases, Table};
use advisory_tests::Database;
use advisory_tests::bookings::execute;
use advisory_tests::leases::{GENEROUS, database, finish, key, leases_at, orphan, until_free};
use advisory_tests::player::{Player, ROLE, URL};
use diesel::ExpressionMethods;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::env;
use std::future::pending;
use std::time::{Duration, Instant};

diesel::table! {
    written (what) {
        what -> Text,
    }
}

/// Longer than a busy machine is suspended, but short: each test waits for the expiry.
const TTL: Duration = Duration::from_secs(4);

/// The messages of the processes, with the server's time.
async fn stage() -> Database {
    let db = database().await;
    db.run(
        "CREATE TABLE said (what text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp()); \
         CREATE TABLE written (what text PRIMARY KEY); INSERT INTO written VALUES ('nothing')",
    )
    .await;
    db
}

async fn say(conn: &mut AsyncPgConnection, what: &str) {
    let what = what.replace('\'', "''");
    let said = execute(conn, &format!("INSERT INTO said VALUES ('{what}')")).await;
    said.unwrap();
}

async fn until_said(db: &Database, what: &str) {
    let said = format!("SELECT FROM said WHERE what LIKE '{what}'");
    db.until_some(what, &said).await;
}

/// The token of the last grant, and its expiry in microseconds, even if it has passed.
async fn granted(db: &Database) -> [i64; 2] {
    let until = "SELECT (extract(epoch FROM expires_at) * 1000000)::int8 FROM advisory_lease";
    let fence = "SELECT token FROM advisory_lease";
    [db.count(fence).await, db.count(until).await]
}

async fn acquired(db: &Database) -> i64 {
    db.count("SELECT (extract(epoch FROM acquired_at) * 1000000)::int8 FROM advisory_lease")
        .await
}

/// Does nothing unless another test starts it.
#[tokio::test]
async fn the_process_that_holds() {
    let (Ok(role), Ok(url)) = (env::var(ROLE), env::var(URL)) else {
        return;
    };
    let leases = leases_at(&url, 3);
    let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
    let mut other = AsyncPgConnection::establish(&url).await.unwrap();
    let mut held = leases.acquire(key("k").ttl(TTL)).await.unwrap();
    let lease = held.lease().clone();
    if role == "fenced" {
        write_and_stop(&mut conn, &mut other, &lease).await;
        return;
    }
    let mut beats = 0;
    let run = held.run(async {
        say(&mut conn, "held").await;
        loop {
            let beat = format!("INSERT INTO said VALUES ('beat {beats}')");
            execute(&mut other, &beat).await.unwrap();
            beats += 1;
        }
    });
    let run: Result<(), Error> = run.await;
    say(&mut conn, &format!("run: {}", run.unwrap_err())).await;
    let fenced = write(&mut conn, &lease, "fenced").await;
    say(&mut conn, &format!("fence: {fenced:?}")).await;
    let update = diesel::update(written::table)
        .filter(lease.is_current())
        .set(written::what.eq("by condition"));
    let changed = update.execute(&mut conn).await.unwrap();
    say(&mut conn, &format!("condition: {changed}")).await;
    let ended = finish(held).await;
    say(&mut conn, &format!("finish: {ended:?}")).await;
}

async fn write(conn: &mut AsyncPgConnection, lease: &Lease, what: &str) -> Result<(), Error> {
    let written = conn.transaction(async |conn| {
        lease.fence(conn).await?;
        diesel::update(written::table)
            .set(written::what.eq(what))
            .execute(conn)
            .await
            .map_err(Error::Database)
    });
    written.await.map(drop)
}

async fn write_and_stop(
    conn: &mut AsyncPgConnection,
    other: &mut AsyncPgConnection,
    lease: &Lease,
) {
    let written = conn.transaction(async |conn| {
        lease.fence(conn).await?;
        diesel::update(written::table)
            .set(written::what.eq("by who was stopped"))
            .execute(conn)
            .await?;
        say(other, "written").await;
        pending::<Result<(), Error>>().await
    });
    written.await.unwrap();
}

fn holder(db: &Database, role: &str) -> Player {
    Player::start("lease_stopped::the_process_that_holds", db, role)
}

#[tokio::test]
async fn a_killed_holders_key_is_free_at_its_expiry_and_not_before() {
    let db = stage().await;
    let player = holder(&db, "idle");
    until_said(&db, "held").await;
    drop(player);
    let [token, until] = granted(&db).await;
    let since = Instant::now();
    let wait = key("k").wait(GENEROUS);
    let next = leases_at(db.url(), 1).acquire(wait).await.unwrap();
    eprintln!(
        "killed, taken over after {:.1?} of {TTL:?}",
        since.elapsed()
    );
    assert!(next.lease().token().get() > token);
    let acquired = acquired(&db).await;
    assert!(acquired >= until, "{acquired} {until}");
}

#[tokio::test]
async fn a_holder_stopped_past_its_expiry_is_refused_and_dropped() {
    let db = stage().await;
    let mut conn = db.connect().await;
    for is_taken in [true, false] {
        db.run("DELETE FROM said").await;
        let player = holder(&db, "idle");
        until_said(&db, "held").await;
        player.stop();
        // Statements that it has sent are still executed.
        db.until_quiet().await;
        until_free(&db).await;
        let table = Table::new();
        let mut taken = None;
        if is_taken {
            taken = Some(orphan(db.url(), &table, key("k")).await);
        }
        let beats = "SELECT count(*) FROM said WHERE what LIKE 'beat%'";
        let before = db.count(beats).await;
        player.resume();
        until_said(&db, "finish:%").await;
        for claim in [
            "run: %was lost%",
            "fence: Err(Lost%",
            "condition: 0",
            "finish: Err(Lost%",
        ] {
            until_said(&db, claim).await;
        }
        assert_eq!(
            db.count("SELECT count(*) FROM written WHERE what = 'nothing'")
                .await,
            1
        );
        // If it is stopped between its check of the clock and its next statement, it may send that
        // one: therefore the fence.
        let late = db.count(beats).await - before;
        eprintln!("{late} statements of the body behind the expiry");
        assert!(late <= 1, "{late}");
        if let Some(taken) = taken {
            assert!(leases_at(db.url(), 1).holds(&taken).await.unwrap());
            assert!(table.release(&mut conn, &taken).await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_holder_stopped_in_a_fence_excludes_until_it_is_ended() {
    let db = stage().await;
    let pool = db.deadpool(1);
    let leases = Leases::new(pool.clone());
    execute(&mut pool.get().await.unwrap(), "SET lock_timeout = '100ms'")
        .await
        .unwrap();
    let player = holder(&db, "fenced");
    until_said(&db, "written").await;
    player.stop();
    let [token, until] = granted(&db).await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND state = 'idle in transaction'";
    assert_eq!(db.count(open).await, 1);
    let since = Instant::now();
    let (mut refused, mut slowest) = (0, Duration::ZERO);
    let next = loop {
        let tried = Instant::now();
        match leases.acquire(key("k")).await {
            Ok(next) => break next,
            // At once: a wait for its row would be ended by `lock_timeout`, with another error.
            Err(Error::Held { .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
        slowest = slowest.max(tried.elapsed());
        assert!(since.elapsed() < GENEROUS, "it keeps others out forever");
    };
    eprintln!(
        "refused {refused} times, the slowest took {slowest:.1?}; taken over after {:.1?} of {TTL:?}",
        since.elapsed()
    );
    assert!(refused > 0);
    assert!(next.lease().token().get() > token);
    let acquired = acquired(&db).await;
    assert!(acquired >= until, "{acquired} {until}");
    // Its locks are released a moment before it leaves the list.
    let left = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                AND state = 'idle in transaction'";
    db.until_none("the end of the old writer's session", left)
        .await;
    drop(player);
    let committed = "SELECT count(*) FROM written WHERE what = 'nothing'";
    assert_eq!(db.count(committed).await, 1, "the old writer's row");
}
