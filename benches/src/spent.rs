//! The processor time that the server's backend and this process spend on one call.
//!
//! From Linux's account of each process (`/proc/PID/schedstat`). Waiting, and other load, hardly
//! change it.

use crate::flags::Flags;
use crate::ours::{Session, Xact, XactBounded};
use crate::rivals::diesel_async::ByHand;
use crate::rivals::sqlx::{Lock, Transaction};
use crate::rivals::tokio_postgres::Three;
use crate::server::Server;
use crate::setting::Setting;
use crate::side::{Open, Operation};
use std::fmt;
use std::fs;

/// Microseconds a call, the minimum of the rounds.
pub(crate) struct Spent {
    what: &'static str,
    server: f64,
    client: f64,
}

const ROUNDS: usize = 8;
const CALLS: u32 = 1_000;

pub(crate) async fn run(
    server: &Server,
    flags: &Flags,
) -> Result<Vec<Spent>, Box<dyn std::error::Error>> {
    let url = server.url(&Setting::plain(1));
    let mut all = Vec::new();
    macro_rules! spend {
        ($($what:literal $side:ty;)*) => { $(
            if flags.wants(concat!("processor time ", $what)) {
                all.extend(spent::<$side>($what, url).await?);
            }
        )* };
    }
    spend! {
        "locked: xact" Xact;
        "locked: xact, max_hold" XactBounded;
        "diesel-async by hand" ByHand;
        "tokio-postgres, 3 round trips" Three;
        "sqlx's transaction" Transaction;
        "locked: session" Session;
        "sqlx's PgAdvisoryLock" Lock;
    }
    Ok(all)
}

/// `None` if the system does not keep this account.
async fn spent<O: Open + Operation>(
    what: &'static str,
    url: &str,
) -> Result<Option<Spent>, Box<dyn std::error::Error>> {
    let (watcher, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let driven = tokio::spawn(connection);
    let mut side = O::open(url, 7).await;
    side.operate().await;
    let newest = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
         AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY backend_start DESC LIMIT 1";
    let backend: i32 = watcher.query_one(newest, &[]).await?.get(0);
    let mut least = None;
    for _ in 0..ROUNDS {
        let (Some(server), Some(client)) =
            (account(backend.unsigned_abs()), account(std::process::id()))
        else {
            break;
        };
        for _ in 0..CALLS {
            side.operate().await;
        }
        let a_call = |since: f64, pid| account(pid).map(|now| (now - since) / f64::from(CALLS));
        if let (Some(server), Some(client)) = (
            a_call(server, backend.unsigned_abs()),
            a_call(client, std::process::id()),
        ) {
            let least = least.get_or_insert(Spent {
                what,
                server,
                client,
            });
            least.server = least.server.min(server);
            least.client = least.client.min(client);
        }
    }
    drop((watcher, side));
    driven.await??;
    Ok(least)
}

/// The processor time of a process's first thread, in microseconds.
pub(crate) fn account(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1_000.0)
}

impl Spent {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "case": self.what, "server_us": self.server, "client_us": self.client })
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            server,
            client,
        } = self;
        write!(
            f,
            "processor time of a call    {what:<30} server {server:>5.1} µs  client {client:>5.1} µs  both {:>5.1} µs",
            server + client
        )
    }
}
