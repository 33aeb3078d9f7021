//! Claims and completes jobs of a table with a million pending ones: ours compared with jobs by
//! hand and with `graphile_worker`'s statements, with and without a limit for each tenant, and with
//! done rows left in the table.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::rivals::SMALL;
use crate::rivals::diesel_async::connect;
use crate::rivals::graphile_worker::{self, GraphileWorker};
use crate::rivals::holder_columns::Columns;
use crate::rivals::open_transaction::{self, Transaction, table};
use crate::rivals::tokio_postgres::client;
use crate::setting::{Keys, Setting};
use crate::side::{Beside, Open, Operation};
use advisory_runtime::claim::{self, Claim};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::error::Error;
use std::marker::PhantomData;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        tenant_id -> BigInt,
        run_at -> Timestamptz,
        attempts -> Integer,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(run_at, attempts, max_attempts = 25)]
pub(crate) struct Job {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = jobs)]
#[claim(run_at, attempts, max_attempts = 25, per = "tenant_id", limit = 1)]
pub(crate) struct JobPerTenant {
    id: i64,
}

const PENDING: u32 = 1_000_000;
/// How many done rows are left in the table, and the schema of such tables.
const DONE: [(u32, &str, &str); 2] = [
    (0, "none done", "none_done"),
    (1_000_000, "1M done", "most_done"),
];
const RIVALS: [Rival; 4] = [
    Rival::Transaction,
    Rival::Columns,
    Rival::GraphileWorker,
    Rival::NoneDone,
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rival {
    Transaction,
    Columns,
    GraphileWorker,
    /// Ours, in a table without done rows.
    NoneDone,
}

impl Rival {
    const fn name(self) -> &'static str {
        match self {
            Self::Transaction => "SELECT in a transaction",
            Self::Columns => "UPDATE by hand",
            Self::GraphileWorker => "graphile_worker",
            Self::NoneDone => "the same, none done",
        }
    }

    /// Whether there is such a comparison: an `UPDATE` by hand has no exact limit, and
    /// `graphile_worker` deletes done rows.
    const fn is_for(self, done: u32, is_limited: bool) -> bool {
        match self {
            Self::Transaction => true,
            Self::Columns => !is_limited,
            Self::GraphileWorker => done == 0,
            Self::NoneDone => done > 0,
        }
    }
}

pub(crate) async fn run(
    db: &Database,
    flags: &Flags,
    tell: &mut dyn FnMut(Measured),
) -> Result<(), Box<dyn Error>> {
    let all = DONE.map(|(done, note, schema)| {
        let each = [false, true].into_iter().flat_map(move |is_limited| {
            let rivals = RIVALS.into_iter();
            let rivals = rivals.filter(move |rival| rival.is_for(done, is_limited));
            rivals.flat_map(move |rival| {
                let case = |connections| case(flags, note, connections, is_limited, rival);
                [1, 16].map(|connections| Some((is_limited, rival, case(connections)?)))
            })
        });
        (done, schema, each.flatten().collect::<Vec<_>>())
    });
    if all.iter().all(|(_, _, cases)| cases.is_empty()) {
        return Ok(());
    }
    for (done, schema, cases) in all {
        if cases.is_empty() && done > 0 {
            continue;
        }
        db.run(&format!(
            "CREATE SCHEMA {schema}; SET search_path = {schema}; {}; {}",
            table("jobs", PENDING, done),
            open_transaction::up(PENDING, done)
        ))
        .await;
        for (is_limited, rival, case) in cases {
            let (url, rounds) = (db.url(), flags.pairs());
            let tables = Tables { url, schema };
            tell(if is_limited {
                tables
                    .measure::<JobPerTenant, true>(db, case, rival, rounds)
                    .await?
            } else {
                tables
                    .measure::<Job, false>(db, case, rival, rounds)
                    .await?
            });
        }
        if done > 0 {
            db.run(&format!("DROP SCHEMA {schema} CASCADE")).await;
        }
    }
    db.run("DROP SCHEMA none_done CASCADE; DROP SCHEMA IF EXISTS graphile_worker CASCADE")
        .await;
    Ok(())
}

fn case(
    flags: &Flags,
    note: &'static str,
    connections: usize,
    is_limited: bool,
    rival: Rival,
) -> Option<Case> {
    let what = if is_limited {
        "job: claim, complete, per"
    } else {
        "job: claim, complete"
    };
    Case::wanted(
        flags,
        [what, note],
        Setting::plain(connections),
        rival.name(),
    )
}

/// The tables of one schema.
struct Tables<'d> {
    url: &'d str,
    schema: &'static str,
}

impl Tables<'_> {
    async fn measure<T: Claim, const PER: bool>(
        &self,
        db: &Database,
        case: Case,
        rival: Rival,
        rounds: usize,
    ) -> Result<Measured, Box<dyn Error>>
    where
        Ours<T>: Operation + 'static,
    {
        let count = case.setting.connections;
        // Each case begins without the dead rows of the one before.
        let indexes = claim::indexes::<T>().concat();
        if rival == Rival::GraphileWorker {
            db.run(&graphile_worker::up(PENDING, PER)).await;
        }
        for schema in [self.schema, "none_done"] {
            db.run(&format!("{}; {indexes}", path(schema))).await;
            for table in ["jobs", "hand_jobs"] {
                db.run(&format!("VACUUM ANALYZE {schema}.{table}")).await;
            }
        }
        let mut ours = self.ours::<T>(self.schema, count).await;
        Ok(match rival {
            Rival::Transaction => {
                let mut each = Vec::new();
                for _ in 0..count {
                    each.push(Transaction::<PER>(self.connect(self.schema).await));
                }
                case.measure(rounds, &mut ours, &mut beside(each)).await
            }
            Rival::Columns => {
                let mut each = Vec::new();
                for _ in 0..count {
                    let client = client(self.url).await?;
                    client.batch_execute(&path(self.schema)).await?;
                    each.push(Columns::new(client).await?);
                }
                case.measure(rounds, &mut ours, &mut beside(each)).await
            }
            Rival::GraphileWorker => {
                db.run(graphile_worker::VACUUM).await;
                let mut each = Vec::new();
                for _ in 0..count {
                    each.push(GraphileWorker::<PER>::new(client(self.url).await?).await?);
                }
                case.measure(rounds, &mut ours, &mut beside(each)).await
            }
            Rival::NoneDone => {
                let mut theirs = self.ours::<T>("none_done", count).await;
                case.measure(rounds, &mut ours, &mut theirs).await
            }
        })
    }

    async fn ours<T: Claim>(&self, schema: &str, count: usize) -> Beside<Ours<T>> {
        let mut each = Vec::new();
        for _ in 0..count {
            each.push(Ours(self.connect(schema).await, PhantomData));
        }
        beside(each)
    }

    async fn connect(&self, schema: &str) -> AsyncPgConnection {
        let mut conn = connect(self.url).await;
        let path = path(schema);
        conn.batch_execute(&path).await.expect("a connection");
        conn
    }
}

fn path(schema: &str) -> String {
    format!("SET search_path = {schema}")
}

fn beside<O>(each: Vec<O>) -> Beside<O> {
    let keys = Keys::Distinct;
    Beside { each, keys }
}

/// Claims a job, and completes it.
pub(crate) struct Ours<T>(AsyncPgConnection, PhantomData<T>);

impl<T: Claim> Operation for Ours<T> {
    async fn operate(&mut self) {
        let job = claim::next::<T>("bench").first(&mut self.0).await;
        let job = job.expect("the server answers").expect("a job");
        claim::complete(&mut self.0, &job)
            .await
            .expect("it is held");
    }
}

impl<T: Claim> Open for Ours<T> {
    async fn open(url: &str, _: i64) -> Self {
        let mut conn = connect(url).await;
        let up = format!(
            "DROP TABLE IF EXISTS jobs; {}; {}",
            table("jobs", SMALL, 0),
            claim::indexes::<T>().concat()
        );
        conn.batch_execute(&up).await.expect("the table");
        conn.batch_execute("VACUUM ANALYZE jobs")
            .await
            .expect("the table");
        Self(conn, PhantomData)
    }
}
