//! A call on a pool's connection, dropped after each of its polls: the pool hands out a working
//! connection at once.

use advisory_runtime::{Connection, Wait, session};
use advisory_tests::bookings::{committed, database, insert, run};
use advisory_tests::dropped_call::{
    Bystanders, DROPS, SCOPES, SOON, Scope, ask_for_the_pooler, call, goes_on,
};
use advisory_tests::futures::is_ready_within;
use advisory_tests::{Database, Proxy, debug_checks_are_on};
use diesel::ConnectionResult;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, PoolableConnection, bb8, deadpool,
};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::timeout;

/// The path to the server: through a proxy and, while that holds everything back, directly for new
/// connections.
struct Network {
    proxy: Proxy,
    direct: String,
    is_silent: AtomicBool,
}

impl Network {
    async fn before(db: &Database) -> Arc<Self> {
        Arc::new(Self {
            proxy: Proxy::start(db).await,
            direct: db.url().to_owned(),
            is_silent: AtomicBool::new(false),
        })
    }

    fn silence(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
        self.proxy.stop_forwarding();
    }

    fn resume(&self) {
        self.is_silent.store(false, Ordering::SeqCst);
        self.proxy.resume_forwarding();
    }

    async fn connect(self: Arc<Self>) -> ConnectionResult<AsyncPgConnection> {
        let url = if self.is_silent.load(Ordering::SeqCst) {
            &self.direct
        } else {
            self.proxy.url()
        };
        AsyncPgConnection::establish(url).await
    }

    fn manager(self: &Arc<Self>) -> AsyncDieselConnectionManager<AsyncPgConnection> {
        let network = Arc::clone(self);
        let mut config = ManagerConfig::default();
        config.custom_setup = Box::new(move |_| Box::pin(Arc::clone(&network).connect()));
        AsyncDieselConnectionManager::new_with_config("", config)
    }
}

enum Pool {
    Bb8(bb8::Pool<AsyncPgConnection>),
    Deadpool(deadpool::Pool<AsyncPgConnection>),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Bb8,
    Deadpool,
}

/// The argument of the function: the pool's object, or a plain connection borrowed from it, as
/// users write.
#[derive(Clone, Copy, Debug)]
enum Lent {
    Object,
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ended {
    Ready,
    /// Dropped, and its connection is closed. Nothing that it has sent arrives until the network
    /// resumes.
    Closed,
    /// Dropped when it had sent only a check of debug builds.
    Untouched,
}

/// Polls the call this many times, and drops it if it is not ready by then.
async fn call_or_drop<C: Connection>(
    conn: &mut C,
    scope: Scope,
    polls: usize,
    network: &Network,
) -> Ended {
    let mut call = Box::pin(call(conn, scope, Wait::Session));
    if is_ready_within(polls, call.as_mut()).await {
        return Ended::Ready;
    }
    network.silence();
    drop(call);
    if conn.pg().is_broken() {
        return Ended::Closed;
    }
    network.resume();
    Ended::Untouched
}

impl Pool {
    async fn new(kind: Kind, network: &Arc<Network>) -> Self {
        let manager = network.manager();
        match kind {
            Kind::Bb8 => {
                let pool = bb8::Pool::builder().max_size(1).build(manager).await;
                Self::Bb8(pool.unwrap())
            }
            Kind::Deadpool => {
                let pool = deadpool::Pool::builder(manager).max_size(1).build();
                Self::Deadpool(pool.unwrap())
            }
        }
    }

    async fn call(&self, lent: Lent, scope: Scope, polls: usize, network: &Network) -> Ended {
        macro_rules! call {
            ($pool:expr) => {{
                let mut conn = $pool.get().await.unwrap();
                match lent {
                    Lent::Object => call_or_drop(&mut conn, scope, polls, network).await,
                    Lent::Plain => call_or_drop(&mut *conn, scope, polls, network).await,
                }
            }};
        }
        match self {
            Self::Bb8(pool) => call!(pool),
            Self::Deadpool(pool) => call!(pool),
        }
    }

    async fn goes_on(&self, db: &Database, after: &str) {
        match self {
            Self::Bb8(pool) => goes_on(&mut pool.get().await.unwrap(), db, after).await,
            Self::Deadpool(pool) => goes_on(&mut pool.get().await.unwrap(), db, after).await,
        }
    }
}

/// "At once" means: while nothing of the dropped call's connection reaches the server, and its
/// session still exists with its locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_works_at_once_after_a_drop_at_any_poll() {
    let db = database().await;
    ask_for_the_pooler(&db).await;
    let bystanders = Bystanders::start(&db).await;
    let network = Network::before(&db).await;
    for kind in [Kind::Bb8, Kind::Deadpool] {
        for (lent, scope) in [Lent::Object, Lent::Plain]
            .into_iter()
            .flat_map(|lent| SCOPES.map(|scope| (lent, scope)))
        {
            let mut closed = 0;
            while closed < DROPS {
                let who = format!("{kind:?}, {lent:?}, {scope:?}");
                for polls in 1.. {
                    let after = format!("{who}, dropped after poll {polls}");
                    let pool = Pool::new(kind, &network).await;
                    let ended = pool.call(lent, scope, polls, &network).await;
                    // Waiting for the clean-up would take forever.
                    let went_on = timeout(SOON, pool.goes_on(&db, &after)).await;
                    assert!(went_on.is_ok(), "no connection: {after}");
                    network.resume();
                    db.until_no_locks().await;
                    match ended {
                        Ended::Ready => break,
                        Ended::Closed => closed += 1,
                        // The answer to a check can take several polls, since it can arrive in
                        // pieces.
                        Ended::Untouched => assert!(debug_checks_are_on(), "{after}"),
                    }
                }
            }
        }
    }
    bystanders.were_left_alone().await;
    db.until_quiet().await;
}

/// A connection with an open transaction would answer `Ok` to this insert, and never commit it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_dropped_at_any_poll_leaves_no_transaction_in_the_pool() {
    let db = database().await;
    let pool = db.deadpool(2);
    for polls in 1.. {
        // Connected before, so that each poll is one of `verify` itself.
        let mut conns = [pool.get().await.unwrap(), pool.get().await.unwrap()];
        for conn in &mut conns {
            run(conn, "SELECT 1").await;
        }
        drop(conns);
        let is_ready = is_ready_within(polls, session::verify(&pool)).await;
        let mut conns = [pool.get().await.unwrap(), pool.get().await.unwrap()];
        for conn in &mut conns {
            insert(conn, 7, "Ada").await.unwrap();
        }
        let kept = committed(&db, 7).await;
        assert_eq!(kept, 2, "dropped after poll {polls}");
        db.run("DELETE FROM booking").await;
        db.until_no_locks().await;
        if is_ready {
            break;
        }
    }
}
