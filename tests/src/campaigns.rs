//! Candidates that lead in turn, and the storage to which leaders write.

use crate::bookings::in_transaction;
use crate::failover::GENEROUS;
use advisory_runtime::lease::{Error, Lease, Leases, Request, lead_until};
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long a term lasts unless it is renewed.
pub const TTL: Duration = Duration::from_secs(2);

/// Storage that only compares tokens.
#[derive(Default)]
pub struct Store {
    /// The largest token so far.
    pub largest: i64,
    /// How often writes under a token were refused.
    pub refused: BTreeMap<i64, usize>,
    /// Who wrote under a token, and when last.
    pub written: BTreeMap<i64, (usize, Instant)>,
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

/// Candidates that run until [`end`](Self::end).
pub struct Campaigns {
    store: Arc<Mutex<Store>>,
    wrote: Arc<Notify>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Result<(), Error>>,
}

impl Campaigns {
    /// Each candidate leads on the primary that its address finds, and writes to the store and,
    /// fenced, to the table `work`.
    pub fn start(urls: [String; 2]) -> Self {
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

    /// Waits until the condition returns a value.
    pub async fn until<T>(&self, mut is_so: impl FnMut(&Store) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(found) = is_so(&self.store.lock().unwrap()) {
                return found;
            }
            assert!(since.elapsed() < GENEROUS);
            self.wrote.notified().await;
        }
    }

    /// Ends the candidates.
    pub async fn end(self) -> Store {
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
    in_transaction(&mut conn, async |conn| {
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

/// The table to which leaders write.
pub const WORK: &str =
    "CREATE TABLE work (token int8 NOT NULL, number int8 GENERATED ALWAYS AS IDENTITY)";

/// How often the token grew, and how often it fell, in the order of the writes.
pub const ORDER: [&str; 2] = [
    "SELECT count(DISTINCT token) FROM work",
    "SELECT count(*) FROM work AS a JOIN work AS b ON b.number > a.number AND b.token < a.token",
];
