//! Claim the next row and give it back, in tables of different sizes: what a claim costs must not grow with the table.

use crate::case::{Case, Side};
use advisory_runtime::claim::{self, Claim};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;
use std::error::Error;
use std::time::{Duration, Instant};

mod few {
    diesel::table! {
        few_jobs (id) {
            id -> BigInt,
            priority -> Integer,
            created_at -> Timestamptz,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
            completed_at -> Nullable<Timestamptz>,
        }
    }
}

mod many {
    diesel::table! {
        many_jobs (id) {
            id -> BigInt,
            priority -> Integer,
            created_at -> Timestamptz,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
            completed_at -> Nullable<Timestamptz>,
        }
    }
}

use few::few_jobs;
use many::many_jobs;

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = few_jobs)]
#[claim(order = "priority desc, created_at")]
struct Few {
    id: i64,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = many_jobs)]
#[claim(order = "priority desc, created_at")]
struct Many {
    id: i64,
}

struct Claims<T> {
    conn: AsyncPgConnection,
    times: Vec<Duration>,
    of: std::marker::PhantomData<T>,
}

macro_rules! side {
    ($row:ty) => {
        impl Side for Claims<$row> {
            async fn until(&mut self, end: Instant) -> usize {
                let mut operations = 0;
                while Instant::now() < end {
                    let start = Instant::now();
                    let claimed = claim::next::<$row, _>(&mut self.conn, "bench").await;
                    self.times.push(start.elapsed());
                    let claimed = claimed.expect("the server answers").expect("a row");
                    // Given back, so that there is always one.
                    let done = claim::release(&mut self.conn, &claimed).await;
                    done.expect("it is held");
                    operations += 1;
                }
                operations
            }
        }
    };
}
side!(Few);
side!(Many);

/// The case, and the median of one claim in the large table.
pub(crate) async fn run(db: &Database, rounds: usize) -> Result<(Case, Duration), Box<dyn Error>> {
    for (table, rows, indexes) in [
        ("few_jobs", 10_000, claim::indexes::<Few>()),
        ("many_jobs", 1_000_000, claim::indexes::<Many>()),
    ] {
        db.run(&format!(
            "CREATE TABLE {table} (id bigint PRIMARY KEY, priority integer NOT NULL, created_at timestamptz NOT NULL, \
             locked_until timestamptz, locked_by text, completed_at timestamptz); \
             INSERT INTO {table} SELECT i, i % 10, now() - i * interval '1 s' FROM generate_series(1, {rows}) AS i"
        ))
        .await;
        db.run(&indexes.concat()).await;
        db.run(&format!("VACUUM ANALYZE {table}")).await;
    }
    let mut many: Claims<Many> = Claims {
        conn: db.connect().await,
        times: Vec::new(),
        of: std::marker::PhantomData,
    };
    let mut few: Claims<Few> = Claims {
        conn: db.connect().await,
        times: Vec::new(),
        of: std::marker::PhantomData,
    };
    let what = (
        "claim: next and release",
        "1M rows".to_owned(),
        1,
        "the same, 10,000 rows",
    );
    let case = Case::measure(what, rounds, &mut many, &mut few).await;
    many.times.sort();
    let median = many.times[many.times.len() / 2];
    Ok((case, median))
}
