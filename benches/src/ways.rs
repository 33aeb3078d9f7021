//! The ways to lock. Each is a word of `--call`, which calls it repeatedly for `instructions` to
//! count.

use crate::jobs::{Job, JobPerTenant, Ours};
use crate::leases;
use crate::ours::{
    Nested, Session, SessionBlocking, SessionNever, SessionWait, Xact, XactBlocking,
    XactBlockingWait, XactBounded, XactNever, XactPermits, XactPoll, XactRepeatable, XactTwo,
    XactWait,
};
use crate::rivals::graphile_worker::GraphileWorker;
use crate::rivals::holder_columns::Columns;
use crate::rivals::open_transaction::Transaction;
use crate::rivals::{diesel_async, diesel_blocking, sqlx, tokio_postgres, two_tables};
use crate::side::{Blocking, Open, Operation};
use std::future::{Ready, ready};
use std::pin::Pin;

/// One way to lock.
pub(crate) struct Way {
    /// Ways with the same part are compared.
    pub(crate) part: &'static str,
    pub(crate) name: &'static str,
    pub(crate) is_ours: bool,
    call: Call,
}

type Call = fn(String, u32) -> Pin<Box<dyn Future<Output = ()>>>;

impl Way {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|way| way.name == name)
    }

    /// The text that `--only` searches.
    pub(crate) fn label(&self) -> String {
        format!("{}: {}", self.part, self.name)
    }

    /// Connects, and makes this many calls.
    pub(crate) async fn call(&self, url: &str, times: u32) {
        (self.call)(url.to_owned(), times).await;
    }
}

/// The key of each side, which is not contended.
const KEY: i64 = 7;

async fn awaits<O: Open + Operation>(url: String, times: u32) {
    let mut side = O::open(&url, KEY).await;
    for _ in 0..times {
        side.operate().await;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "called as what awaits is")]
fn blocks<B: Blocking>(url: String, times: u32) -> Ready<()> {
    let mut side = B::open(&url, KEY);
    for _ in 0..times {
        side.operate();
    }
    ready(())
}

const OURS: bool = true;
const THEIRS: bool = false;

macro_rules! ways {
    ($($part:literal { $($name:literal $whose:ident $kind:ident $side:ty;)* })*) => {
        &[$($(Way {
            part: $part,
            name: $name,
            is_ours: $whose,
            call: |url, times| Box::pin($kind::<$side>(url, times)),
        },)*)*]
    };
}

pub(crate) const ALL: &[Way] = ways! {
    "transaction" {
        "#[advisory_lock]" OURS awaits Xact;
        "diesel-async by hand" THEIRS awaits diesel_async::ByHand;
        "tokio-postgres, 4 round trips" THEIRS awaits tokio_postgres::Sequential;
        "tokio-postgres, 3 round trips" THEIRS awaits tokio_postgres::Three;
        "tokio-postgres, pipelined" THEIRS awaits tokio_postgres::Pipelined;
        "sqlx's transaction" THEIRS awaits sqlx::Transaction;
        "wait = \"5s\"" OURS awaits XactWait;
        "wait = \"never\"" OURS awaits XactNever;
        "poll = \"250ms\"" OURS awaits XactPoll;
        "permits = 3, poll = \"250ms\"" OURS awaits XactPermits;
        "max_hold = \"30s\"" OURS awaits XactBounded;
        "two keys" OURS awaits XactTwo;
        "isolation = \"repeatable read\"" OURS awaits XactRepeatable;
    }
    "inside a transaction" {
        "nested" OURS awaits Nested;
        "nested by hand" THEIRS awaits diesel_async::Nested;
    }
    "session" {
        "scope = \"session\"" OURS awaits Session;
        "sqlx's PgAdvisoryLock" THEIRS awaits sqlx::Lock;
        "scope = \"session\", wait = \"5s\"" OURS awaits SessionWait;
        "scope = \"session\", wait = \"never\"" OURS awaits SessionNever;
    }
    "blocking" {
        "blocking" OURS blocks XactBlocking;
        "blocking Diesel by hand" THEIRS blocks diesel_blocking::ByHand;
        "blocking, wait = \"5s\"" OURS blocks XactBlockingWait;
        "blocking, scope = \"session\"" OURS blocks SessionBlocking;
    }
    "lease" {
        "lease" OURS awaits leases::Ours;
        "two tables, advisory lock" THEIRS awaits two_tables::TwoTables;
    }
    "job" {
        "claim::next, claim::complete" OURS awaits Ours<Job>;
        "SELECT … SKIP LOCKED in a transaction, UPDATE" THEIRS awaits Transaction<false>;
        "UPDATE … SKIP LOCKED, UPDATE" THEIRS awaits Columns;
        "graphile_worker's statements" THEIRS awaits GraphileWorker<false>;
    }
    "job of a tenant" {
        "per = \"tenant_id\", limit = 1" OURS awaits Ours<JobPerTenant>;
        "SELECT … pg_try_advisory_xact_lock(tenant_id)" THEIRS awaits Transaction<true>;
        "graphile_worker's named queues" THEIRS awaits GraphileWorker<true>;
    }
};
