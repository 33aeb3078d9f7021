//! Acquires and releases a lease without contention: one row and two statements, compared with two
//! tables and seven statements.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::rivals::diesel_async::connect;
use crate::rivals::two_tables::TwoTables;
use crate::setting::{Keys, Setting};
use crate::side::{Beside, Open, Operation};
use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::Wait;
use advisory_runtime::lease::{Request, Table};
use advisory_tests::Database;
use diesel_async::AsyncPgConnection;
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
    let table = Table::new();
    table.set_up(&mut db.connect().await).await?;
    TwoTables::set_up(&mut db.connect().await).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for index in 0..connections {
        let key = format!("job:{index}");
        ours.push(Ours {
            table: table.clone(),
            conn: db.connect().await,
            key: key.clone(),
        });
        theirs.push(TwoTables::new(db.connect().await, key));
    }
    let keys = Keys::Distinct;
    let mut ours = Beside { each: ours, keys };
    let mut theirs = Beside { each: theirs, keys };
    Ok(case.measure(rounds, &mut ours, &mut theirs).await)
}

/// A lease without contention.
pub(crate) struct Ours {
    table: Table,
    conn: AsyncPgConnection,
    key: String,
}

impl Open for Ours {
    async fn open(url: &str, key: i64) -> Self {
        let (table, mut conn) = (Table::new(), connect(url).await);
        table.set_up(&mut conn).await.expect("the table");
        let key = format!("job:{key}");
        Self { table, conn, key }
    }
}

impl Operation for Ours {
    async fn operate(&mut self) {
        let request = Request::text(self.key.clone()).wait(Wait::Never);
        let lease = self.table.acquire(&mut self.conn, request).await;
        let lease = lease.expect("nobody else wants it");
        let released = self.table.release(&mut self.conn, &lease).await;
        assert!(released.expect("the server answers"), "it was held");
    }
}
