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
use diesel_async::AsyncPgConnection;
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
            async fn run(&mut self, length: Duration) -> f64 {
                let begun = Instant::now();
                let mut operations = 0;
                while begun.elapsed() < length {
                    let start = Instant::now();
                    let claimed = claim::next::<$row>("bench").first(&mut self.conn).await;
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
    };
}
side!(Few);
side!(Many);

/// The median time of one claim in the large table.
pub(crate) async fn run(
    db: &Database,
    flags: &Flags,
    tell: &mut dyn FnMut(Measured),
) -> Option<Duration> {
    let case = Case {
        what: "claim: next, release",
        note: "1M rows",
        setting: Setting::plain(1),
        rival: "the same, 10,000 rows",
    };
    if !flags.wants(&case.label()) {
        return None;
    }
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
    tell(case.measure(flags.pairs(), &mut many, &mut few).await);
    many.times.sort();
    Some(per_mille(&many.times, 500))
}
