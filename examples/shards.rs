//! Two servers, and tenants who each live on one of them: a lock where its rows live, two locks in the order of the shards, and a
//! transfer between shards, which no transaction can commit as a whole.
//!
//! `cargo run --example shards` starts both servers. Look at `spend`, `audit` and `send`.

#![allow(clippy::print_stdout, reason = "the outcome is run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::sync::Arc;

use advisory_runtime::{Error, Pool as _, advisory_lock};
use advisory_tests::OwnServer;
use diesel::dsl::exists;
use diesel::prelude::*;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const SCHEMA: &str = "
    CREATE TABLE accounts (tenant_id bigint PRIMARY KEY, balance bigint NOT NULL);
    CREATE TABLE sent (id bigserial PRIMARY KEY, recipient bigint NOT NULL, amount bigint NOT NULL);
    CREATE TABLE received (sender bigint, id bigint, PRIMARY KEY (sender, id))";

diesel::table! {
    accounts (tenant_id) {
        tenant_id -> BigInt,
        balance -> BigInt,
    }
}

diesel::table! {
    sent (id) {
        id -> BigInt,
        recipient -> BigInt,
        amount -> BigInt,
    }
}

diesel::table! {
    received (sender, id) {
        sender -> BigInt,
        id -> BigInt,
    }
}

/// A pool for each server.
#[derive(Clone)]
struct Shards(Arc<[Pool<AsyncPgConnection>; 2]>);

impl Shards {
    /// The shard that has a tenant's rows, and so the tenant's lock. Every program has to compute the same one.
    fn number(tenant_id: i64) -> usize {
        usize::from(tenant_id % 2 != 0)
    }

    fn of(&self, tenant_id: i64) -> &Pool<AsyncPgConnection> {
        &self.0[Self::number(tenant_id)]
    }

    /// The order in which locks of several tenants are taken: by shard, then by tenant.
    fn in_order(mut tenants: [i64; 2]) -> [i64; 2] {
        tenants.sort_by_key(|tenant_id| (Self::number(*tenant_id), *tenant_id));
        tenants
    }
}

async fn balance(conn: &mut AsyncPgConnection, tenant_id: i64) -> QueryResult<i64> {
    let account = accounts::table.find(tenant_id);
    account.select(accounts::balance).first(conn).await
}

async fn add(conn: &mut AsyncPgConnection, tenant_id: i64, amount: i64) -> QueryResult<usize> {
    let account = diesel::update(accounts::table.find(tenant_id));
    let more = accounts::balance.eq(accounts::balance + amount);
    account.set(more).execute(conn).await
}

/// The lock and the rows are on one shard, so this is as safe as on a single server.
#[advisory_lock(key = "tenant:<tenant_id>", name = "tenant", pool = shards.of(tenant_id))]
async fn spend(shards: &Shards, tenant_id: i64, amount: i64) -> Result<bool, Error> {
    if balance(conn, tenant_id).await? < amount {
        return Ok(false);
    }
    add(conn, tenant_id, -amount).await?;
    Ok(true)
}

/// The balances of two tenants at one time. It takes both locks, in the order of the shards: no server sees a deadlock that spans two
/// of them, and only `wait` would end it.
async fn audit(shards: &Shards, tenants: [i64; 2]) -> Result<i64, Error> {
    let [first, second] = Shards::in_order(tenants);
    with_first(shards, first, second, None).await
}

/// The same without the order. Two opposite calls meet when each has its first lock.
async fn audit_without_order(
    shards: &Shards,
    tenants: [i64; 2],
    both: &Barrier,
) -> Result<i64, Error> {
    let [first, second] = tenants;
    with_first(shards, first, second, Some(both)).await
}

#[advisory_lock(key = "tenant:<first>", name = "tenant", pool = shards.of(first), wait = "1s")]
async fn with_first(
    shards: &Shards,
    first: i64,
    second: i64,
    both: Option<&Barrier>,
) -> Result<i64, Error> {
    if let Some(both) = both {
        both.wait().await;
    }
    let own = balance(conn, first).await?;
    // The second lock, on another server, and the first is still held.
    Ok(own + with_second(shards, second).await?)
}

#[advisory_lock(key = "tenant:<second>", name = "tenant", pool = shards.of(second), wait = "1s")]
async fn with_second(shards: &Shards, second: i64) -> Result<i64, Error> {
    Ok(balance(conn, second).await?)
}

/// The first half of a transfer: one commit on the sender's shard takes the money and notes the transfer.
#[advisory_lock(key = "tenant:<sender>", name = "tenant", pool = shards.of(sender))]
async fn send(shards: &Shards, sender: i64, recipient: i64, amount: i64) -> Result<bool, Error> {
    if balance(conn, sender).await? < amount {
        return Ok(false);
    }
    add(conn, sender, -amount).await?;
    let transfer = (sent::recipient.eq(recipient), sent::amount.eq(amount));
    let insert = diesel::insert_into(sent::table).values(transfer);
    insert.execute(conn).await?;
    Ok(true)
}

/// The second half, repeated until it has been confirmed: one commit on the recipient's shard, which knows what it has received.
#[advisory_lock(key = "tenant:<recipient>", name = "tenant", pool = shards.of(recipient))]
async fn receive(
    shards: &Shards,
    recipient: i64,
    sender: i64,
    id: i64,
    amount: i64,
) -> Result<(), Error> {
    let is_known = diesel::select(exists(received::table.find((sender, id))));
    if !is_known.get_result(conn).await? {
        let transfer = (received::sender.eq(sender), received::id.eq(id));
        let insert = diesel::insert_into(received::table).values(transfer);
        insert.execute(conn).await?;
        add(conn, recipient, amount).await?;
    }
    Ok(())
}

/// Delivers what a shard has sent. A worker does this with `claim::worker`; it can be killed between the two statements.
async fn deliver(shards: &Shards, sender: i64, is_killed: bool) -> Outcome<()> {
    let mut conn = shards.of(sender).connection().await?;
    let transfers: Vec<(i64, i64, i64)> = sent::table.load(&mut conn).await?;
    for (id, recipient, amount) in transfers {
        receive(shards, recipient, sender, id, amount).await?;
        if is_killed {
            break;
        }
        let confirmed = diesel::delete(sent::table.find(id));
        confirmed.execute(&mut conn).await?;
    }
    Ok(())
}

async fn shard(server: &OwnServer) -> Outcome<Pool<AsyncPgConnection>> {
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(server.url());
    let pool = Pool::builder(manager).max_size(8).build()?;
    pool.get().await?.batch_execute(SCHEMA).await?;
    Ok(pool)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let servers = [OwnServer::start().await, OwnServer::start().await];
    let [one, other] = &servers;
    let shards = Shards(Arc::new([shard(one).await?, shard(other).await?]));
    // On one server each.
    let (ada, ben) = (10, 11);
    for tenant_id in [ada, ben] {
        let account = (accounts::tenant_id.eq(tenant_id), accounts::balance.eq(30));
        let insert = diesel::insert_into(accounts::table).values(account);
        insert
            .execute(&mut shards.of(tenant_id).get().await?)
            .await?;
    }

    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let shards = shards.clone();
        calls.spawn(async move { spend(&shards, ada, 1).await });
    }
    let mut spent = 0;
    while let Some(call) = calls.join_next().await {
        spent += i32::from(call??);
    }
    println!("one shard      {spent} of 50 calls spent 1 from 30");

    let both = Barrier::new(2);
    let (one, other) = tokio::join!(
        audit_without_order(&shards, [ada, ben], &both),
        audit_without_order(&shards, [ben, ada], &both),
    );
    let is_timed_out = |call: &Result<i64, Error>| matches!(call, Err(Error::TimedOut { .. }));
    let has_timed_out = is_timed_out(&one) || is_timed_out(&other);
    println!("without order  a call waited until its `wait` had passed: {has_timed_out}");

    let (one, other) = tokio::join!(audit(&shards, [ada, ben]), audit(&shards, [ben, ada]));
    println!("in order       both calls found {} and {}", one?, other?);

    send(&shards, ben, ada, 10).await?;
    deliver(&shards, ben, true).await?;
    deliver(&shards, ben, false).await?;
    println!(
        "transfer       delivered twice, and counted once: {} and {}",
        balance(&mut *shards.of(ben).get().await?, ben).await?,
        balance(&mut *shards.of(ada).get().await?, ada).await?,
    );
    Ok(())
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
