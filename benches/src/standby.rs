//! The cost of a standby: the same call on a server that one follows and on a server by itself,
//! with and without waiting for it.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::ours::{Xact, XactWrite};
use crate::setting::{Keys, Setting};
use crate::side::{Beside, Open, Operation};
use advisory_tests::OwnServer;
use std::error::Error;
use std::time::{Duration, Instant};

const QUERY: &str = "xact: a query";
const WRITE: &str = "xact: a write";
const RIVAL: &str = "a server by itself";

struct Pairs<'r> {
    alone: &'r OwnServer,
    followed: &'r OwnServer,
    flags: &'r Flags,
    tell: &'r mut dyn FnMut(Measured),
}

pub(crate) async fn run(
    flags: &Flags,
    tell: &mut dyn FnMut(Measured),
) -> Result<(), Box<dyn Error>> {
    let notes = ["a standby", "a synchronous standby"];
    let all = notes.map(|note| [case(QUERY, note), case(WRITE, note)]);
    if !all.iter().flatten().any(|case| flags.wants(&case.label())) {
        return Ok(());
    }
    let (alone, followed) = (OwnServer::start().await, OwnServer::start().await);
    let _standby = followed.follow().await;
    let mut pairs = Pairs {
        alone: &alone,
        followed: &followed,
        flags,
        tell,
    };
    for note in notes {
        if note == notes[1] {
            wait_for_the_standby(&followed).await?;
        }
        pairs.pair::<Xact>(case(QUERY, note)).await;
        pairs.pair::<XactWrite>(case(WRITE, note)).await;
    }
    Ok(())
}

fn case(what: &'static str, note: &'static str) -> Case {
    Case {
        what,
        note,
        setting: Setting::plain(1),
        rival: RIVAL,
    }
}

/// From now on each commit waits until the standby has it on its disk.
async fn wait_for_the_standby(primary: &OwnServer) -> Result<(), Box<dyn Error>> {
    let (client, connection) =
        tokio_postgres::connect(primary.url(), tokio_postgres::NoTls).await?;
    let driven = tokio::spawn(connection);
    for statement in [
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    ] {
        client.batch_execute(statement).await?;
    }
    let state = "SELECT coalesce(max(sync_state), 'none') FROM pg_stat_replication";
    let asked = Instant::now();
    loop {
        let state: String = client.query_one(state, &[]).await?.get(0);
        if state == "sync" {
            break;
        }
        if asked.elapsed() > Duration::from_secs(30) {
            return Err(format!("the standby is not synchronous: {state}").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(client);
    Ok(driven.await??)
}

impl Pairs<'_> {
    async fn pair<O: Open + Operation + 'static>(&mut self, case: Case) {
        if self.flags.wants(&case.label()) {
            let mut ours = Beside::<O>::open(self.followed.url(), 1, Keys::Distinct).await;
            let mut theirs = Beside::<O>::open(self.alone.url(), 1, Keys::Distinct).await;
            (self.tell)(
                case.measure(self.flags.pairs(), &mut ours, &mut theirs)
                    .await,
            );
        }
    }
}
