//! The cost of a standby: the same call on a server that one follows and on a server by itself,
//! with and without waiting for it.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::ours::{Xact, XactWrite};
use crate::setting::Setting;
use advisory_tests::OwnServer;
use std::error::Error;
use std::time::{Duration, Instant};

const QUERY: &str = "xact: a query";
const WRITE: &str = "xact: a write";
const RIVAL: &str = "a server by itself";

pub(crate) async fn run(
    flags: &Flags,
    tell: &mut dyn FnMut(Measured),
) -> Result<(), Box<dyn Error>> {
    let notes = ["a standby", "a synchronous standby"];
    let case = |what, note| Case::wanted(flags, [what, note], Setting::plain(1), RIVAL);
    let all = notes.map(|note| (note, case(QUERY, note), case(WRITE, note)));
    if all
        .iter()
        .all(|(_, query, write)| query.is_none() && write.is_none())
    {
        return Ok(());
    }
    let (alone, followed) = (OwnServer::start().await, OwnServer::start().await);
    let _standby = followed.follow().await;
    let (ours, theirs) = (followed.url(), alone.url());
    for (note, query, write) in all {
        if note == notes[1] {
            wait_for_the_standby(&followed).await?;
        }
        if let Some(case) = query {
            tell(case.pair::<Xact, Xact>(flags, ours, theirs).await);
        }
        if let Some(case) = write {
            tell(case.pair::<XactWrite, XactWrite>(flags, ours, theirs).await);
        }
    }
    Ok(())
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
        #[expect(clippy::disallowed_methods, reason = "between two looks passes time")]
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(client);
    Ok(driven.await??)
}
