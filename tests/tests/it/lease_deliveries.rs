//! A webhook's first delivery dies at each of its steps while redeliveries arrive: in the end the
//! effect has happened exactly once, and no delivery was answered "done" before the commit.

use advisory_runtime::lease::Error;
use advisory_runtime::{Pool as _, advisory_lease};
use advisory_tests::Database;
use advisory_tests::bookings::{execute, run};
use advisory_tests::leases::{FIRST as LAST_TOKEN_BEFORE, Pool, database};
use advisory_tests::player::{Player, ROLE, URL};
use diesel_async::AsyncConnection;
use std::env;
use std::future::pending;

/// The answer to a delivery. While another one is being handled it is an error, so that the
/// provider delivers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Handled,
    Done,
}

#[derive(Clone)]
struct Webhooks {
    pool: Pool,
    /// Where it stops: it reports the point, and does nothing afterwards.
    stops: String,
}

impl Webhooks {
    fn new(url: &str, stops: &str) -> Self {
        Self {
            pool: Database::deadpool_at(url, 4),
            stops: stops.to_owned(),
        }
    }

    async fn at(&self, point: &str) -> Result<(), Error> {
        if self.stops.starts_with(point) {
            let mut conn = self.pool.connection().await?;
            execute(&mut conn, "INSERT INTO said VALUES ('there')").await?;
            pending::<()>().await;
        }
        Ok(())
    }

    #[advisory_lease(
        key = "delivered-webhook:<id>",
        pool = self.pool,
        keep = "24h",
        wait = "never",
        on_done = Ok(Answer::Done),
        handle = lease
    )]
    async fn deliver(&self, id: &str) -> Result<Answer, Error> {
        self.at("in the body").await?;
        let mut conn = self.pool.connection().await?;
        let credited = conn.transaction(async |conn| {
            execute(conn, "UPDATE account SET balance = balance + 1").await?;
            self.at("after its writes").await?;
            if !self.stops.ends_with(WITHOUT) {
                lease.complete(conn).await?;
            }
            self.at("before the commit").await
        });
        credited.await?;
        drop(conn);
        self.at("after the commit").await?;
        Ok(Answer::Handled)
    }
}

/// Of a delivery that does not complete its lease.
const WITHOUT: &str = "without complete";

/// Does nothing unless another test starts it.
#[tokio::test]
async fn the_first_delivery() {
    let (Ok(stops), Ok(url)) = (env::var(ROLE), env::var(URL)) else {
        return;
    };
    let webhooks = Webhooks::new(&format!("{url}?application_name=first"), &stops);
    webhooks.deliver("evt").await.unwrap();
}

/// A statement of the first delivery waits until advisory lock 8 is free.
const WAITS: &str = "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     IF current_setting('application_name') = 'first' THEN PERFORM pg_advisory_xact_lock_shared(8); END IF; RETURN NULL; END $$;";
const AT_THE_GRANT: &str =
    "CREATE TRIGGER waits AFTER INSERT ON advisory_lease FOR EACH ROW EXECUTE FUNCTION waits()";
const AT_THE_COMMIT: &str = "CREATE CONSTRAINT TRIGGER waits AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED \
     FOR EACH ROW EXECUTE FUNCTION waits()";

const THERE: &str = "SELECT 1 FROM said UNION ALL SELECT 1 FROM pg_locks \
     WHERE locktype = 'advisory' AND NOT granted \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
const FIRST: &str = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'first'";

async fn balance(db: &Database) -> i64 {
    db.count("SELECT balance FROM account").await
}

/// A provider, which delivers again until the webhook is handled or done. Returns how many
/// deliveries did the work.
async fn redeliver(db: &Database, webhooks: &Webhooks) -> usize {
    loop {
        match webhooks.deliver("evt").await {
            Ok(answer) => {
                assert_eq!(balance(db).await, 1, "answered {answer:?}");
                return usize::from(answer == Answer::Handled);
            }
            Err(error) => assert!(error.is_held(), "{error:?}"),
        }
    }
}

/// The answers to three deliveries at the same time: all the same, while nothing changes.
async fn answers(webhooks: &Webhooks) -> Option<Answer> {
    let deliver = async || match webhooks.deliver("evt").await {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert!(error.is_held(), "{error:?}");
            None
        }
    };
    let (a, b, c) = tokio::join!(deliver(), deliver(), deliver());
    assert!(a == b && b == c, "{:?}", [a, b, c]);
    a
}

async fn stage(trigger: &str) -> Database {
    let db = database().await;
    db.run("CREATE TABLE said (what text); CREATE TABLE account AS SELECT 0::int8 AS balance")
        .await;
    db.run(&format!("{WAITS}{trigger}")).await;
    db
}

/// The first grant's ttl is over.
async fn expire_first(db: &Database) {
    let first = LAST_TOKEN_BEFORE + 1;
    db.run(&format!(
        "UPDATE advisory_lease SET expires_at = pg_catalog.clock_timestamp() WHERE token = {first} AND NOT is_kept"
    ))
    .await;
}

/// Kills the first delivery where it stops; with `ends_session` the server also ends its session,
/// as after a crash of its machine.
async fn kill(stops: &str, trigger: &str, is_committed: [bool; 2], ends_session: bool) {
    let db = stage(trigger).await;
    let mut gate = db.connect().await;
    run(&mut gate, "SELECT pg_advisory_lock(8)").await;
    let expected = |is_committed: bool| is_committed.then_some(Answer::Done);
    let player = Player::start("lease_deliveries::the_first_delivery", &db, stops);
    db.until_some("the first delivery at its step", THERE).await;
    let webhooks = Webhooks::new(db.url(), "nowhere");
    // Providers that deliver continuously, from now on.
    let providers = async { tokio::join!(redeliver(&db, &webhooks), redeliver(&db, &webhooks)) };
    let rest = async {
        let answered = answers(&webhooks).await;
        assert_eq!(
            answered,
            expected(is_committed[0]),
            "{stops}, while it lives"
        );
        drop(player);
        if ends_session {
            db.run(&FIRST.replace("SELECT pid", "SELECT pg_terminate_backend(pid)"))
                .await;
        } else if !trigger.is_empty() {
            // The server has not noticed that the process is dead.
            let answered = answers(&webhooks).await;
            assert_eq!(answered, expected(is_committed[0]), "{stops}, dead");
        }
        run(&mut gate, "SELECT pg_advisory_unlock(8)").await;
        db.until_none("the end of its sessions", FIRST).await;
        // Without its grant the key is free, and a provider's delivery may be handled by now.
        if !(ends_session && trigger == AT_THE_GRANT) {
            let answered = answers(&webhooks).await;
            assert_eq!(answered, expected(is_committed[1]), "{stops}, gone");
        }
        expire_first(&db).await;
        redeliver(&db, &webhooks).await
    };
    let ((a, b), c) = tokio::join!(providers, rest);
    assert_eq!(a + b + c, usize::from(!is_committed[1]), "{stops}");
    assert_eq!(balance(&db).await, 1, "{stops}");
    assert_eq!(answers(&webhooks).await, Some(Answer::Done));
}

#[tokio::test]
async fn a_delivery_killed_before_its_commit_is_never_called_done() {
    for stops in ["in the body", "after its writes", "before the commit"] {
        kill(stops, "", [false, false], false).await;
    }
}

#[tokio::test]
async fn a_delivery_killed_before_its_grant_is_answered_is_not_done() {
    for ends_session in [false, true] {
        kill("at the grant", AT_THE_GRANT, [false, false], ends_session).await;
    }
}

#[tokio::test]
async fn a_delivery_killed_in_its_commit_is_done_if_that_succeeds() {
    for ends_session in [false, true] {
        let is_committed = [false, !ends_session];
        kill("at the commit", AT_THE_COMMIT, is_committed, ends_session).await;
    }
}

#[tokio::test]
async fn a_delivery_killed_after_its_commit_is_done() {
    kill("after the commit", "", [true, true], false).await;
}

/// The control: what the pages say about a lease without `complete`.
#[tokio::test]
async fn without_complete_work_killed_after_its_commit_runs_again() {
    let db = stage("").await;
    let stops = format!("after the commit, {WITHOUT}");
    let player = Player::start("lease_deliveries::the_first_delivery", &db, &stops);
    db.until_some("the first delivery at its step", THERE).await;
    drop(player);
    db.until_none("the end of its sessions", FIRST).await;
    expire_first(&db).await;
    let again = Webhooks::new(db.url(), "nowhere").deliver("evt").await;
    assert_eq!(again.unwrap(), Answer::Handled);
    assert_eq!(balance(&db).await, 2);
}
