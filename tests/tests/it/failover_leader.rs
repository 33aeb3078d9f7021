//! A leader whose primary is killed, or goes on by itself while its standby is promoted.

use crate::failover::{GENEROUS, connect, cut_off, either, number, primary, timeline_of};
use advisory_runtime::lease::{Error, Lease, Leases, Request, lead_until};
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(2);

/// Storage that only compares tokens.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) largest: i64,
    refused: BTreeMap<i64, usize>,
    /// Who wrote under a token, and when last.
    written: BTreeMap<i64, (usize, Instant)>,
}

impl Store {
    fn write(&mut self, token: i64, candidate: usize) {
        if token < self.largest {
            *self.refused.entry(token).or_default() += 1;
            return;
        }
        self.largest = token;
        let written = self
            .written
            .entry(token)
            .or_insert((candidate, Instant::now()));
        assert_eq!(written.0, candidate, "a token is one leader's");
        written.1 = Instant::now();
    }
}

pub(crate) struct Campaigns {
    store: Arc<Mutex<Store>>,
    wrote: Arc<Notify>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Result<(), Error>>,
}

impl Campaigns {
    /// Each candidate leads on the primary that its address finds, and writes to the store and, fenced, to the table `work`.
    pub(crate) fn start(urls: [String; 2]) -> Self {
        let mut campaigns = Self {
            store: Arc::default(),
            wrote: Arc::default(),
            stop: Arc::default(),
            tasks: JoinSet::new(),
        };
        for (candidate, url) in urls.into_iter().enumerate() {
            let (store, wrote) = (Arc::clone(&campaigns.store), Arc::clone(&campaigns.wrote));
            let stop = Arc::clone(&campaigns.stop);
            campaigns
                .tasks
                .spawn(lead(candidate, url, store, wrote, stop));
        }
        campaigns
    }

    /// Waits until the store is as asked.
    pub(crate) async fn until<T>(&self, mut is_so: impl FnMut(&Store) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(found) = is_so(&self.store.lock().unwrap()) {
                return found;
            }
            assert!(since.elapsed() < GENEROUS);
            self.wrote.notified().await;
        }
    }

    pub(crate) async fn end(self) -> Store {
        self.stop.store(true, Ordering::Relaxed);
        for ended in self.tasks.join_all().await {
            ended.unwrap();
        }
        Arc::into_inner(self.store).unwrap().into_inner().unwrap()
    }
}

async fn lead(
    candidate: usize,
    url: String,
    store: Arc<Mutex<Store>>,
    wrote: Arc<Notify>,
    stop: Arc<AtomicBool>,
) -> Result<(), Error> {
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url.as_str());
    let leases = Leases::new(Pool::builder(manager).max_size(2).build().unwrap());
    let shutdown = async {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        while !AtomicBool::load(&stop, Ordering::Relaxed) {
            tick.tick().await;
        }
    };
    let request = Request::text("leader").ttl(TTL);
    let (store, wrote, url) = (&store, &wrote, &url);
    lead_until(&leases, request, shutdown, |lease| async move {
        let mut tick = tokio::time::interval(Duration::from_millis(2));
        loop {
            tick.tick().await;
            store.lock().unwrap().write(lease.token().get(), candidate);
            drop(write_fenced(url, &lease).await);
            wrote.notify_one();
        }
    })
    .await
}

/// Writes the token to the table `work`, if the term is still its own.
async fn write_fenced(url: &str, lease: &Lease) -> Result<(), Error> {
    let mut conn = AsyncPgConnection::establish(url)
        .await
        .map_err(|_| diesel::result::Error::NotFound)?;
    conn.transaction(async |conn| {
        lease.fence(conn).await?;
        let insert = diesel::sql_query("INSERT INTO work VALUES ($1)");
        insert
            .bind::<BigInt, _>(lease.token().get())
            .execute(conn)
            .await?;
        Ok(())
    })
    .await
}

pub(crate) const WORK: &str =
    "CREATE TABLE work (token int8 NOT NULL, number int8 GENERATED ALWAYS AS IDENTITY)";

/// How often the token grew, and how often it fell, in the order of the writes.
pub(crate) const ORDER: [&str; 2] = [
    "SELECT count(DISTINCT token) FROM work",
    "SELECT count(*) FROM work AS a JOIN work AS b ON b.number > a.number AND b.token < a.token",
];

/// The new primary does not know the term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_followed_by_a_larger_token() {
    let Some(primary) = primary().await else {
        return;
    };
    connect(&primary).await.batch_execute(WORK).await.unwrap();
    let standby = primary.follow().await;
    cut_off(&primary, &standby).await;
    let url = either(&primary, &standby);
    let campaigns = Campaigns::start([url.clone(), url]);
    let first = campaigns
        .until(|store| (store.largest > 0).then_some(store.largest))
        .await;
    assert_eq!(timeline_of(first), 1);
    primary.stop("immediate").await;
    let killed = Instant::now();
    standby.promote().await;
    campaigns
        .until(|store| (store.largest > first).then_some(()))
        .await;
    let store = campaigns.end().await;
    assert_eq!(timeline_of(store.largest), 2);
    // The first leader stopped by itself, within its ttl; a second is for a machine that is busy.
    let (_, last) = store.written[&first];
    let late = last.saturating_duration_since(killed);
    assert!(late < TTL + Duration::from_secs(1), "{late:?}");
}

/// Both lead at once, since neither primary knows of the other. Storage takes the writes of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_leader_is_refused_by_storage() {
    let Some(primary) = primary().await else {
        return;
    };
    connect(&primary).await.batch_execute(WORK).await.unwrap();
    let standby = primary.follow().await;
    cut_off(&primary, &standby).await;
    let urls = [&primary, &standby].map(|server| server.url().to_owned());
    let campaigns = Campaigns::start(urls);
    let isolated = campaigns
        .until(|store| (store.largest > 0).then_some(store.largest))
        .await;
    assert_eq!(timeline_of(isolated), 1);
    standby.promote().await;
    let after = campaigns
        .until(|store| {
            let is_refused = store
                .refused
                .get(&isolated)
                .is_some_and(|times| *times >= 3);
            (is_refused && store.largest > isolated).then_some(store.largest)
        })
        .await;
    assert_eq!(timeline_of(after), 2);
    let store = campaigns.end().await;
    assert!(store.refused.keys().all(|token| timeline_of(*token) == 1));
    // What the isolated leader wrote under its fence is in its own database, and in no other.
    let mut conn = connect(&standby).await;
    let old = "SELECT count(*) FROM work WHERE token >> 40 = 1";
    assert_eq!(number(&mut conn, old).await, 0);
    assert!(number(&mut conn, ORDER[0]).await > 0);
    assert!(number(&mut connect(&primary).await, old).await > 0);
}
