//! The cost of a call of each kind in instructions, on the server and on the client.
//!
//! Each figure is the difference between many calls and few, so it contains neither the connection
//! nor the first call of a session. A busy machine changes nothing. Each way is counted twice, and
//! the output says by how much the two counts differ.

use crate::callgrind::{self, Counting, Totals};
use crate::flags::Flags;
use crate::ways::{self, Way};
use advisory_tests::{Database, Proxy};
use std::error::Error;
use std::fmt;
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls};

/// A client's start varies by about 200,000 instructions, so there are enough calls to make that
/// negligible.
const FEW: u32 = 100;
const MANY: u32 = 500;
const TRIPS: u32 = 10;

/// Why nothing is counted.
const NO_VALGRIND: &str = "instructions are counted by valgrind, which is not installed here \
     (`apt-get install valgrind`, `dnf install valgrind`)";

/// The cost of one call of a way.
pub(crate) struct Counted {
    way: &'static Way,
    /// Both counts.
    server: [i64; 2],
    client: [i64; 2],
    round_trips: f64,
}

pub(crate) async fn count(flags: &Flags) -> Result<Vec<Counted>, Box<dyn Error>> {
    if !callgrind::is_installed()? {
        return Err(NO_VALGRIND.into());
    }
    let mut counting = Counting::start().await?;
    quiet(&mut counting).await?;
    let db = Database::try_create().await?;
    let proxy = Proxy::start(&db).await;
    println!("{}", Counted::HEAD);
    let mut all = Vec::new();
    for way in ways::ALL.iter().filter(|way| flags.wants(&way.label())) {
        let (first_server, first_client) = a_call(&mut counting, way).await?;
        let (second_server, second_client) = a_call(&mut counting, way).await?;
        let counted = Counted {
            way,
            server: [first_server, second_server],
            client: [first_client, second_client],
            round_trips: round_trips(&proxy, way).await?,
        };
        println!("{counted}");
        all.push(counted);
    }
    let apart = all.iter().map(Counted::apart).fold(0.0, f64::max);
    println!(
        "instructions of a call in user space; the two counts of a way differ by {apart:.2} % at most"
    );
    Ok(all)
}

/// Only our sessions; the first one writes a cache for the others.
async fn quiet(counting: &mut Counting) -> Result<(), Box<dyn Error>> {
    let (client, connection) = tokio_postgres::connect(counting.url(), NoTls).await?;
    let driven = tokio::spawn(connection);
    let others = "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%' OR pid = pg_backend_pid()";
    let others = client.query(others, &[]).await?;
    let others: Vec<i32> = others.iter().map(|row| row.get(0)).collect();
    client
        .batch_execute("ALTER SYSTEM SET autovacuum = off")
        .await?;
    client.batch_execute("SELECT pg_reload_conf()").await?;
    drop(client);
    driven.await??;
    counting.forget(&others).await
}

async fn a_call(counting: &mut Counting, way: &Way) -> Result<(i64, i64), Box<dyn Error>> {
    let few = totals(counting, way, FEW).await?;
    let many = totals(counting, way, MANY).await?;
    let calls = i64::from(MANY - FEW);
    let (server, client) = (many.server - few.server, many.client - few.client);
    Ok((server / calls, client / calls))
}

async fn totals(counting: &mut Counting, way: &Way, times: u32) -> Result<Totals, Box<dyn Error>> {
    let words = words(way, counting.url(), times);
    counting.totals(words).await
}

async fn round_trips(proxy: &Proxy, way: &Way) -> Result<f64, Box<dyn Error>> {
    // Not every way accepts the form of the proxy's address.
    let config: Config = proxy.url().parse()?;
    let (Some(Host::Tcp(host)), Some(port), Some(user), Some(database)) = (
        config.get_hosts().first(),
        config.get_ports().first(),
        config.get_user(),
        config.get_dbname(),
    ) else {
        return Err("the proxy listens on a port".into());
    };
    let url = format!("postgres://{user}@{host}:{port}/{database}");
    let mut seen = Vec::new();
    for times in [1, 1 + TRIPS] {
        proxy.reset();
        callgrind::call(words(way, &url, times)).await?;
        seen.push(u32::try_from(proxy.round_trips())?);
    }
    Ok((f64::from(seen[1]) - f64::from(seen[0])) / f64::from(TRIPS))
}

/// The argument of `--call`.
fn words(way: &Way, url: &str, times: u32) -> Vec<String> {
    let times = times.to_string();
    ["--call", way.name, "--times", &times, "--url", url]
        .map(str::to_owned)
        .into()
}

impl Counted {
    const HEAD: &'static str = "way                              server    client  round trips";

    /// By how many per cent of the call the two counts differ, on the side where they differ more.
    fn apart(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a number of instructions")]
        let apart = |[one, other]: [i64; 2]| 100.0 * (one - other).abs() as f64 / one as f64;
        apart(self.server).max(apart(self.client))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "part": self.way.part,
            "way": self.way.name,
            "is_ours": self.way.is_ours,
            "server": self.server,
            "client": self.client,
            "round_trips": self.round_trips,
        })
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.way.name;
        let [server, client] =
            [self.server, self.client].map(|[one, other]| i64::midpoint(one, other));
        write!(
            f,
            "{name:<30} {server:>9} {client:>9}  {:>11}",
            self.round_trips
        )
    }
}
