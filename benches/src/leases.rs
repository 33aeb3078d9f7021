//! Acquire and release a lease nobody else wants: one row and two statements, against two tables and seven.

use crate::case::{Case, Side};
use crate::two_tables::TwoTables;
use advisory_runtime::Wait;
use advisory_runtime::lease::{Request, Table};
use advisory_tests::Database;
use diesel_async::AsyncPgConnection;
use std::error::Error;
use std::time::Instant;
use tokio::task::LocalSet;

pub(crate) async fn run(
    db: &Database,
    connections: usize,
    fsync: &str,
    rounds: usize,
) -> Result<Case, Box<dyn Error>> {
    let table = Table::new();
    table.set_up(&mut db.connect().await).await?;
    TwoTables::set_up(db).await;
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
    let setting = format!("fsync {fsync}");
    let what = (
        "lease: acquire and release",
        setting,
        connections,
        "two tables, advisory lock",
    );
    Ok(Case::measure(what, rounds, &mut Beside(ours), &mut Beside(theirs)).await)
}

struct Ours {
    table: Table,
    conn: AsyncPgConnection,
    key: String,
}

/// One operation.
pub(crate) trait Operation {
    async fn operate(&mut self);
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

/// Several that run beside each other, each on its own connection.
struct Beside<O>(Vec<O>);

impl<O: Operation + 'static> Side for Beside<O> {
    async fn until(&mut self, end: Instant) -> usize {
        let local = LocalSet::new();
        let running: Vec<_> = std::mem::take(&mut self.0)
            .into_iter()
            .map(|mut one| {
                local.spawn_local(async move {
                    let mut operations = 0;
                    while Instant::now() < end {
                        one.operate().await;
                        operations += 1;
                    }
                    (one, operations)
                })
            })
            .collect();
        local.await;
        let mut sum = 0;
        for one in running {
            let (one, operations) = one.await.expect("an operation succeeds");
            self.0.push(one);
            sum += operations;
        }
        sum
    }
}
