//! Poolers, without which tests are left out, and connections to them.

use crate::{Bouncer, Database, left_out};
use advisory_runtime::cancel::startup_process_id;
use diesel_async::{AsyncConnection, AsyncPgConnection};

/// Opens this many connections to a pooler that is recognized as one. Setting up a connection can
/// fail, because its prepared statements and the later query can reach different backends; and one
/// of a thousand process ids that pgbouncer makes up looks like that of a process.
pub async fn connect(url: &str, count: usize) -> Vec<AsyncPgConnection> {
    let mut conns = Vec::new();
    for _ in 0..100 * count {
        let conn = AsyncPgConnection::establish(url).await.ok();
        let is_recognized = |conn: &AsyncPgConnection| {
            startup_process_id(&conn.cancel_token()).is_none_or(|id| id > 1 << 22)
        };
        conns.extend(conn.filter(is_recognized));
        if conns.len() == count {
            return conns;
        }
    }
    panic!("no {count} connections to {url}")
}

/// A pgbouncer with these settings; without one the test is left out.
pub async fn bouncer(db: &Database, settings: &str) -> Option<Bouncer> {
    let started = Bouncer::start(db, settings).await;
    started.map_err(|why| left_out("pgbouncer", why)).ok()
}

/// Like [`bouncer`]; it tracks prepared statements.
pub async fn tracking_bouncer(db: &Database, settings: &str) -> Option<Bouncer> {
    let started = Bouncer::start_tracking(db, settings).await;
    let what = "a pooler that tracks statements";
    started.map_err(|why| left_out(what, why)).ok()
}
