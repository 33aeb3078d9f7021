//! A lock, one query, commit: the attribute against what is written by hand today, and with what it shows of itself against without.

use crate::case::{Case, Side};
use advisory_runtime::advisory_lock;
use advisory_runtime::monitor::{Shown, show};
use advisory_tests::Database;
use diesel::sql_types::{BigInt, Integer};
use diesel::{IntoSql, QueryResult};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::error::Error;
use std::time::Instant;

#[advisory_lock(key = "bench:<tenant>:<day>")]
async fn ours(conn: &mut AsyncPgConnection, tenant: i64, day: i64) -> QueryResult<i32> {
    one(conn).await
}

async fn by_hand(conn: &mut AsyncPgConnection, key: i64) -> QueryResult<i32> {
    conn.transaction(async |conn| {
        diesel::sql_query("SELECT pg_advisory_xact_lock($1)")
            .bind::<BigInt, _>(key)
            .execute(conn)
            .await?;
        one(conn).await
    })
    .await
}

async fn one(conn: &mut AsyncPgConnection) -> QueryResult<i32> {
    diesel::select(1.into_sql::<Integer>())
        .get_result(conn)
        .await
}

struct Ours {
    conn: AsyncPgConnection,
    shown: Shown,
}

impl Side for Ours {
    async fn until(&mut self, end: Instant) -> usize {
        show(self.shown);
        let mut operations = 0;
        while Instant::now() < end {
            ours(&mut self.conn, 7, 20_261_121).await.expect("the lock");
            operations += 1;
        }
        operations
    }
}

struct ByHand(AsyncPgConnection);

impl Side for ByHand {
    async fn until(&mut self, end: Instant) -> usize {
        let mut operations = 0;
        while Instant::now() < end {
            by_hand(&mut self.0, 7).await.expect("the lock");
            operations += 1;
        }
        operations
    }
}

pub(crate) async fn run(db: &Database, rounds: usize) -> Result<Vec<Case>, Box<dyn Error>> {
    let ours = async |shown| Ours {
        conn: db.connect().await,
        shown,
    };
    let mut cases = Vec::new();
    for (setting, shown) in [("pattern", Shown::Pattern), ("nothing", Shown::Nothing)] {
        let what = (
            "xact: lock, query, commit",
            format!("shows {setting}"),
            1,
            "by hand, diesel-async",
        );
        let theirs = &mut ByHand(db.connect().await);
        cases.push(Case::measure(what, rounds, &mut ours(shown).await, theirs).await);
    }
    for (setting, shown) in [("pattern", Shown::Pattern), ("key", Shown::Key)] {
        let what = (
            "xact: what it costs to show",
            format!("shows {setting}"),
            1,
            "showing nothing",
        );
        let theirs = &mut ours(Shown::Nothing).await;
        cases.push(Case::measure(what, rounds, &mut ours(shown).await, theirs).await);
    }
    Ok(cases)
}
