//! Claims the next row and gives it back, in tables of different sizes: the cost of a claim must
//! not grow with the table.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::setting::Setting;
use crate::side::Side;
use crate::spread::per_mille;
use advisory_runtime::claim::{self, Claim};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::time::{Duration, Instant};

diesel::table! {
    queued (id) {
        id -> BigInt,
        priority -> Integer,
        created_at -> Timestamptz,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = queued)]
#[claim(order = "priority desc, created_at")]
struct Queued {
    id: i64,
}

/// The table of one schema.
struct Claims {
    conn: AsyncPgConnection,
    times: Vec<Duration>,
}

impl Claims {
    async fn set_up(db: &Database, schema: &str, rows: u32) -> Self {
        db.run(&format!(
            "CREATE SCHEMA {schema}; SET search_path = {schema}; \
             CREATE TABLE queued (id bigint PRIMARY KEY, priority integer NOT NULL, \
             created_at timestamptz NOT NULL, locked_until timestamptz, locked_by text, \
             completed_at timestamptz); \
             INSERT INTO queued SELECT i, i % 10, now() - i * interval '1 s' \
             FROM generate_series(1, {rows}) AS i"
        ))
        .await;
        db.run(&claim::indexes::<Queued>().concat()).await;
        db.run("VACUUM ANALYZE queued").await;
        db.run("RESET search_path").await;
        let mut conn = db.connect().await;
        let set = format!("SET search_path = {schema}");
        conn.batch_execute(&set).await.expect("a connection");
        let times = Vec::new();
        Self { conn, times }
    }
}

impl Side for Claims {
    async fn run(&mut self, length: Duration) -> f64 {
        let begun = Instant::now();
        let mut operations = 0;
        while begun.elapsed() < length {
            let start = Instant::now();
            let claimed = claim::next::<Queued>("bench").first(&mut self.conn).await;
            self.times.push(start.elapsed());
            let claimed = claimed.expect("the server answers").expect("a row");
            // Given back, so that there is always a free row.
            let done = claim::release(&mut self.conn, &claimed).await;
            done.expect("it is held");
            operations += 1;
        }
        f64::from(operations) / begun.elapsed().as_secs_f64()
    }
}

/// The median time of one claim in the large table.
pub(crate) async fn run(
    db: &Database,
    flags: &Flags,
    tell: &mut dyn FnMut(Measured),
) -> Option<Duration> {
    let (what, rival) = (["claim: next, release", "1M rows"], "the same, 10,000 rows");
    let case = Case::wanted(flags, what, Setting::plain(1), rival)?;
    let mut few = Claims::set_up(db, "few", 10_000).await;
    let mut many = Claims::set_up(db, "many", 1_000_000).await;
    tell(case.measure(flags.pairs(), &mut many, &mut few).await);
    many.times.sort();
    Some(per_mille(&many.times, 500))
}
