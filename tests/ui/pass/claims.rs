//! A row that can be claimed under lints that are strict, in a module and in a function, of names that columns have too.
#![forbid(unsafe_code)]
#![deny(warnings, unused, missing_docs, rust_2018_idioms, nonstandard_style)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]

use advisory_runtime::claim::{Error, self, Claim, End};
use advisory_runtime::Pool;
use diesel::prelude::*;
use std::time::Duration;

mod schema {
    #![allow(missing_docs, reason = "generated")]
    diesel::table! {
        jobs (std) {
            std -> BigInt,
            time -> Nullable<BigInt>,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
            completed_at -> Nullable<Timestamptz>,
            failed_at -> Nullable<Timestamptz>,
        }
    }
}

/// Its key's column is called as the crate of its type.
#[derive(Clone, Queryable, Selectable, Claim)]
#[diesel(table_name = schema::jobs)]
#[claim(key = std, order = "time desc nulls last, std", ttl = Duration::from_secs(30))]
pub struct Job {
    #[diesel(column_name = std)]
    id: std::primitive::i64,
    time: Option<i64>,
}

async fn work(job: &Job) -> Result<i64, Error> {
    Ok(job.time.unwrap_or_default())
}

/// Spawned, by any pool.
pub fn spawned<P: Pool + Clone + Send + Sync + 'static>(pool: P) {
    tokio::spawn(async move {
        let job = claim::next::<Job>("worker").first(&mut pool.connection().await?).await?;
        if let Some(job) = job {
            claim::run(&pool, &job, End::Release, work(&job)).await?;
            claim::next::<Job>("worker").key(job.id).first(&mut pool.connection().await?).await?;
        }
        Ok::<_, Error>(())
    });
}

fn main() {
    diesel::table! {
        checkpoints (matrix, chunk) {
            matrix -> BigInt,
            chunk -> Text,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
        }
    }

    #[derive(Queryable, Selectable, Claim)]
    #[diesel(table_name = checkpoints)]
    #[claim(key = (matrix, chunk))]
    struct Checkpoint {
        matrix: i64,
        chunk: String,
    }
    assert!(claim::indexes::<Checkpoint>().is_empty());
    assert_eq!(Checkpoint::RENEW, Duration::from_secs(20));
}
