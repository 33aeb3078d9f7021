//! Leaders: one at a time, the next one in time, and an immediate resignation. `examples/leader.rs`
//! does it with processes.

use advisory_runtime::Wait;
use advisory_runtime::lease::{self, Error, Lease, Leases, Request, Source};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{Role, database, expire, fence, leases_at};
use advisory_tests::monitor::until_waiters;
use advisory_tests::pauses::pause;
use advisory_tests::statements::run;
use advisory_tests::{Database, assert_matches};
use diesel_async::SimpleAsyncConnection;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

const TTL: Duration = Duration::from_secs(3);

fn campaign() -> Request {
    Request::text("leader").ttl(TTL)
}

/// A separate process, as far as leases are concerned: a pool, a task, and a shutdown.
struct Candidate {
    terms: mpsc::UnboundedReceiver<Lease>,
    shutdown: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), Error>>,
}

impl Candidate {
    fn start(source: impl Source + Send + Sync + 'static) -> Self {
        let (told, terms) = mpsc::unbounded_channel();
        let (shutdown, stopped) = oneshot::channel::<()>();
        let task = spawn(async move {
            let stopped = async { drop(stopped.await) };
            lease::lead_until(&source, campaign(), stopped, async |term| {
                drop(told.send(term));
                pending().await
            })
            .await
        });
        Self {
            terms,
            shutdown: Some(shutdown),
            task,
        }
    }

    async fn term(&mut self) -> Lease {
        let term = tokio::time::timeout(Duration::from_secs(60), self.terms.recv());
        term.await.expect("it does not lead").unwrap()
    }

    async fn stop(mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_next_one_leads_when_the_leader_is_lost_and_a_shutdown_resigns() {
    let db = database().await;
    let mut first = Candidate::start(db.deadpool(2));
    let old = first.term().await;
    let mut second = Candidate::start(db.deadpool(2));
    // Removed by hand: the body is dropped, and both campaign.
    expire(&db).await;
    old.lost().await;
    // Until this process notices, it may have been close to the expiry.
    while old.is_held() {
        pause().await;
    }
    loop {
        let new = tokio::select! {
            term = first.term() => term,
            term = second.term() => term,
        };
        assert!(new.token() > old.token());
        // On a machine that is suspended for longer than a term there is another one.
        if new.is_held() {
            break;
        }
    }
    let mut conn = db.connect().await;
    assert_matches!(fence(&mut conn, &old).await, Err(Error::Lost { .. }));
    // The leader resigns, and reports when the key is free.
    first.stop().await;
    second.stop().await;
    let leases = Leases::new(db.deadpool(2));
    assert_eq!(leases.list().await.unwrap(), []);
    // A candidate has nothing to give up.
    let busy = leases.acquire(campaign().wait(Wait::Never)).await.unwrap();
    Candidate::start(db.deadpool(2)).stop().await;
    drop(busy);
}

#[tokio::test]
async fn a_shutdown_gives_up_what_is_being_granted() {
    let db = database().await;
    let mut other = db.connect().await;
    run(&mut other, "BEGIN; LOCK TABLE advisory_lease").await;
    let candidate = Candidate::start(db.deadpool(2));
    until_waiters(&db, 1).await;
    let mut stopped = std::pin::pin!(candidate.stop());
    let early = tokio::time::timeout(Duration::from_millis(300), &mut stopped);
    assert!(early.await.is_err(), "the grant is under way");
    other.batch_execute("ROLLBACK").await.unwrap();
    stopped.await;
    assert_eq!(Leases::new(db.deadpool(2)).list().await.unwrap(), []);
}

/// The table is locked for longer than the candidates wait for it.
#[tokio::test]
async fn a_campaign_survives_temporary_errors() {
    let db = database().await;
    for (setting, refusal) in [
        ("lock_timeout = '200ms'", Some("LOCK TABLE advisory_lease")),
        (
            "statement_timeout = '200ms'",
            Some("LOCK TABLE advisory_lease"),
        ),
        ("default_transaction_read_only = on", None),
    ] {
        let mut other = db.connect().await;
        let worker = Role::create(&db, "candidate", "advisory_lease", "USAGE, UPDATE").await;
        let role = &worker.name;
        db.run(&format!("ALTER ROLE {role} SET {setting}")).await;
        if let Some(lock) = refusal {
            run(&mut other, &format!("BEGIN; {lock}")).await;
        }
        let mut candidates = [(); 2].map(|()| Candidate::start(leases_at(&worker.url, 2)));
        // Each has failed at least once: as many sessions of the role are idle again after that.
        let tried = format!(
            "SELECT 'no' WHERE (SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}' AND state = 'idle' \
             AND query LIKE 'SELECT CAST(CAST(%pg_walfile_name%' OR usename = '{role}' AND query LIKE '%pg_is_in_recovery%') < 2"
        );
        db.until_none("two refusals", &tried).await;
        assert!(candidates.iter().all(|one| !one.task.is_finished()));
        if refusal.is_some() {
            other.batch_execute("ROLLBACK").await.unwrap();
        } else {
            db.run(&format!(
                "ALTER ROLE {role} RESET default_transaction_read_only"
            ))
            .await;
            db.run(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
            ))
            .await;
        }
        let [first, second] = &mut candidates;
        tokio::select! {
            term = first.term() => drop(term),
            term = second.term() => drop(term),
        }
        for candidate in candidates {
            candidate.stop().await;
        }
        worker.drop(&db).await;
    }
}

/// Trying again does not help if rights are missing.
#[tokio::test]
async fn a_campaign_without_the_rights_ends() {
    let db = database().await;
    // Of the sequence it may only read.
    let role = Role::create(&db, "stranger", "advisory_lease", "SELECT").await;
    for revoked in ["", "REVOKE ALL ON advisory_lease FROM "] {
        if !revoked.is_empty() {
            db.run(&format!("{revoked}{}", role.name)).await;
        }
        let leases = leases_at(&role.url, 2);
        let ended: Result<Infallible, Error> =
            lease::lead(&leases, campaign(), async |_| Ok(())).await;
        assert_matches!(ended, Err(Error::MissingRights { .. }));
    }
    role.drop(&db).await;
}

#[tokio::test]
async fn a_body_that_returns_resigns_and_its_error_ends_the_campaign() {
    let db = database().await;
    let pool = db.deadpool(2);
    let tokens = std::sync::Mutex::new(Vec::new());
    let request = campaign().ttl(Duration::from_millis(300));
    let ended: Result<Infallible, Error> = lease::lead(&pool, request, async |term| {
        let mut tokens = tokens.lock().unwrap();
        tokens.push(term.token());
        match tokens.len() {
            // The result of a body that has lost its lease is ignored.
            3.. => Err(Error::Database(diesel::NotFound)),
            _ => Ok(()),
        }
    })
    .await;
    assert!(matches!(ended, Err(Error::Database(diesel::NotFound))));
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_eq!(Leases::new(pool).list().await.unwrap(), []);
    let empty = Database::create().await;
    let ended: Result<Infallible, Error> =
        lease::lead(&empty.deadpool(1), campaign(), async |_| Ok(())).await;
    assert_matches!(ended, Err(Error::MissingTable { .. }));
}
