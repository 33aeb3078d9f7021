//! Acquires and releases a lease without contention: one row and two statements, compared with two
//! tables and seven statements.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::rivals::two_tables::TwoTables;
use crate::setting::{Keys, Setting};
use crate::side::{Beside, Open, Operation};
use advisory_runtime::Wait;
use advisory_runtime::lease::{self, Leases, Request, Table};
use advisory_tests::Database;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use std::error::Error;

pub(crate) async fn run(
    db: &Database,
    flags: &Flags,
    tell: &mut dyn FnMut(Measured),
) -> Result<(), Box<dyn Error>> {
    // As on a production server. The harness turns it off, since its server is deleted at the end.
    db.run("ALTER SYSTEM SET fsync = on").await;
    db.run("SELECT pg_reload_conf()").await;
    for connections in [1, 16] {
        let (what, rival) = (
            ["lease: acquire, release", "fsync on"],
            "two tables, advisory lock",
        );
        if let Some(case) = Case::wanted(flags, what, Setting::plain(connections), rival) {
            tell(measure(case, db, connections, flags.pairs()).await?);
        }
    }
    db.run("ALTER SYSTEM SET fsync = off").await;
    db.run("SELECT pg_reload_conf()").await;
    Ok(())
}

async fn measure(
    case: Case,
    db: &Database,
    connections: usize,
    rounds: usize,
) -> Result<Measured, Box<dyn Error>> {
    Table::new().set_up(&mut db.connect().await).await?;
    TwoTables::set_up(&mut db.connect().await).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for index in 0..connections {
        let key = format!("job:{index}");
        ours.push(Ours {
            leases: Leases::new(pool(db.url())),
            key: key.clone(),
        });
        theirs.push(TwoTables::new(db.connect().await, key));
    }
    let keys = Keys::Distinct;
    let mut ours = Beside { each: ours, keys };
    let mut theirs = Beside { each: theirs, keys };
    Ok(case.measure(rounds, &mut ours, &mut theirs).await)
}

/// A lease without contention, on a pool of one connection.
pub(crate) struct Ours {
    leases: Leases<Pool<AsyncPgConnection>>,
    key: String,
}

fn pool(url: &str) -> Pool<AsyncPgConnection> {
    let mut config = ManagerConfig::default();
    config.recycling_method = RecyclingMethod::Fast;
    let manager = AsyncDieselConnectionManager::new_with_config(url, config);
    let pool = Pool::builder(manager).max_size(1).build();
    pool.expect("a pool without timeouts")
}

impl Open for Ours {
    async fn open(url: &str, key: i64) -> Self {
        let pool = pool(url);
        // By the pool's connection, since the instructions of one session are counted.
        let mut conn = pool.get().await.expect("a connection");
        Table::new().set_up(&mut conn).await.expect("the table");
        drop(conn);
        let (leases, key) = (Leases::new(pool), format!("job:{key}"));
        Self { leases, key }
    }
}

impl Operation for Ours {
    async fn operate(&mut self) {
        let request = Request::text(self.key.clone()).wait(Wait::Never);
        let held = self.leases.acquire(request).await;
        let held = held.expect("nobody else wants it");
        let released = held.finish(Ok::<_, lease::Error>(())).await;
        released.expect("it was held");
    }
}
