//! Two servers, and tenants who each live on one of them: a lock where its rows live, two locks in
//! the order of the shards, and a transfer between shards, which no transaction can commit as a
//! whole.
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
use uuid::Uuid;

/// How many connections each pool has.
const CONNECTIONS: usize = 8;

const SCHEMA: &str = "
    CREATE TABLE accounts (tenant_id bigint PRIMARY KEY, balance bigint NOT NULL);
    CREATE TABLE sent (id uuid PRIMARY KEY, sender bigint NOT NULL, recipient bigint NOT NULL, amount bigint NOT NULL,
        is_delivered boolean NOT NULL DEFAULT false);
    CREATE TABLE received (id uuid PRIMARY KEY, recipient bigint NOT NULL)";

diesel::table! {
    accounts (tenant_id) {
        tenant_id -> BigInt,
        balance -> BigInt,
    }
}

diesel::table! {
    sent (id) {
        id -> Uuid,
        sender -> BigInt,
        recipient -> BigInt,
        amount -> BigInt,
        is_delivered -> Bool,
    }
}

diesel::table! {
    received (id) {
        id -> Uuid,
        recipient -> BigInt,
    }
}

/// A pool for each server.
#[derive(Clone)]
struct Shards(Arc<[Pool<AsyncPgConnection>; 2]>);

impl Shards {
    /// The shard that has a tenant's rows, and so the tenant's lock. Every program has to compute
    /// the same one.
    fn number(tenant_id: i64) -> usize {
        usize::from(tenant_id % 2 != 0)
    }

    fn of(&self, tenant_id: i64) -> &Pool<AsyncPgConnection> {
        &self.0[Self::number(tenant_id)]
    }

    /// The order in which locks and connections for several tenants are taken: by shard, then by
    /// tenant.
    fn in_order(mut tenants: [i64; 2]) -> [i64; 2] {
        tenants.sort_by_key(|tenant_id| (Self::number(*tenant_id), *tenant_id));
        tenants
    }
}

async fn balance(conn: &mut AsyncPgConnection, tenant_id: i64) -> QueryResult<i64> {
    let account = accounts::table.find(tenant_id);
    account.select(accounts::balance).first(conn).await
}

/// Returns the new balance. A tenant who is not on this shard is an error, so that no money is lost
/// there.
async fn add(conn: &mut AsyncPgConnection, tenant_id: i64, amount: i64) -> QueryResult<i64> {
    let account = diesel::update(accounts::table.find(tenant_id));
    let more = accounts::balance.eq(accounts::balance + amount);
    let added = account.set(more).returning(accounts::balance);
    added.get_result(conn).await
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

/// What two tenants have together at one time. It takes both locks, in the order of the shards: no
/// server sees a deadlock that spans two of them, and only `wait` would end it. If the tenants
/// share a shard, one call takes both locks on one connection: calls that each need two of a pool
/// can wait for each other.
async fn audit(shards: &Shards, tenants: [i64; 2]) -> Result<i64, Error> {
    let mut tenants = Shards::in_order(tenants).to_vec();
    tenants.dedup();
    match tenants[..] {
        [first, second] if Shards::number(first) != Shards::number(second) => {
            with_first(shards, first, second, None).await
        }
        _ => with_all(shards, &tenants).await,
    }
}

/// The tenants are on one shard.
#[advisory_lock(key = "tenant:<tenants*>", name = "tenant", pool = shards.of(tenants[0]))]
async fn with_all(shards: &Shards, tenants: &[i64]) -> Result<i64, Error> {
    let mut sum = 0;
    for tenant_id in tenants {
        sum += balance(conn, *tenant_id).await?;
    }
    Ok(sum)
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

/// A transfer between tenants. The caller chooses the id, which is unique over all shards, and
/// repeats a call with the same id.
#[derive(Clone, Copy)]
struct Transfer {
    id: Uuid,
    sender: i64,
    recipient: i64,
    amount: i64,
}

/// The first half: one commit on the sender's shard takes the money and notes the transfer. If
/// `send` fails with `Error::CommitUnknown`, call it again: a transfer that is noted is not made
/// twice.
#[advisory_lock(key = "tenant:<transfer.sender: int>", name = "tenant", pool = shards.of(transfer.sender))]
async fn send(shards: &Shards, transfer: Transfer) -> Result<bool, Error> {
    let row = (
        sent::id.eq(transfer.id),
        sent::sender.eq(transfer.sender),
        sent::recipient.eq(transfer.recipient),
        sent::amount.eq(transfer.amount),
    );
    // Another transfer with this id fails at the primary key.
    let same = sent::table.find(transfer.id);
    let same = same.filter(sent::sender.eq(transfer.sender));
    let same = same.filter(sent::recipient.eq(transfer.recipient));
    let same = same.filter(sent::amount.eq(transfer.amount));
    if diesel::select(exists(same)).get_result(conn).await? {
        return Ok(true);
    }
    if balance(conn, transfer.sender).await? < transfer.amount {
        return Ok(false);
    }
    add(conn, transfer.sender, -transfer.amount).await?;
    let insert = diesel::insert_into(sent::table).values(row);
    insert.execute(conn).await?;
    Ok(true)
}

/// The second half, repeated until it has been confirmed: one commit on the recipient's shard,
/// which knows what it has received.
#[advisory_lock(key = "tenant:<recipient>", name = "tenant", pool = shards.of(recipient))]
async fn receive(shards: &Shards, recipient: i64, id: Uuid, amount: i64) -> Result<(), Error> {
    let row = (received::id.eq(id), received::recipient.eq(recipient));
    let insert = diesel::insert_into(received::table).values(row);
    if insert.on_conflict_do_nothing().execute(conn).await? == 1 {
        add(conn, recipient, amount).await?;
    }
    Ok(())
}

/// Delivers what the tenants of a shard have sent. A worker does this with `claim::worker`; it can
/// be killed between the two commits. It holds no connection of this shard while it waits for one
/// of the other.
async fn deliver(shards: &Shards, shard: usize, is_killed: bool) -> Outcome<()> {
    let pool = &shards.0[shard];
    for (id, recipient, amount) in under_way(pool).await? {
        receive(shards, recipient, id, amount).await?;
        if is_killed {
            break;
        }
        let confirmed = diesel::update(sent::table.find(id)).set(sent::is_delivered.eq(true));
        confirmed.execute(&mut pool.connection().await?).await?;
    }
    Ok(())
}

async fn under_way(pool: &Pool<AsyncPgConnection>) -> Outcome<Vec<(Uuid, i64, i64)>> {
    let rows = sent::table.filter(sent::is_delivered.eq(false));
    let rows = rows.select((sent::id, sent::recipient, sent::amount));
    Ok(rows.load(&mut pool.connection().await?).await?)
}

async fn shard(server: &OwnServer) -> Outcome<Pool<AsyncPgConnection>> {
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(server.url());
    let pool = Pool::builder(manager).max_size(CONNECTIONS).build()?;
    pool.get().await?.batch_execute(SCHEMA).await?;
    Ok(pool)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let servers = [OwnServer::start().await, OwnServer::start().await];
    let [one, other] = &servers;
    let shards = Shards(Arc::new([shard(one).await?, shard(other).await?]));
    // Ada and Cleo live on one server, and Ben on the other.
    let (ada, ben, cleo) = (10, 11, 12);
    for tenant_id in [ada, ben, cleo] {
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
    Box::pin(read([ada, ben, cleo], &shards)).await?;
    transfer([ada, ben, cleo], &shards).await
}

async fn read([ada, ben, cleo]: [i64; 3], shards: &Shards) -> Outcome<()> {
    let both = Barrier::new(2);
    let (one, other) = tokio::join!(
        audit_without_order(shards, [ada, ben], &both),
        audit_without_order(shards, [ben, ada], &both),
    );
    let is_timed_out = |call: &Result<i64, Error>| matches!(call, Err(Error::TimedOut { .. }));
    let has_timed_out = is_timed_out(&one) || is_timed_out(&other);
    println!("without order  a call waited until its `wait` had passed: {has_timed_out}");

    let (one, other) = tokio::join!(audit(shards, [ada, ben]), audit(shards, [ben, ada]));
    println!("in order       both calls found {} and {}", one?, other?);

    // As many calls as the pool has connections.
    let mut calls = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let shards = shards.clone();
        calls.spawn(async move { audit(&shards, [cleo, ada]).await });
    }
    let mut found = 0;
    while let Some(call) = calls.join_next().await {
        found += i32::from(call?? == 30);
    }
    let twice = audit(shards, [ben, ben]).await?;
    println!("of one shard   {found} calls found 30, and a tenant who was named twice has {twice}");
    Ok(())
}

async fn transfer([ada, ben, cleo]: [i64; 3], shards: &Shards) -> Outcome<()> {
    let gift = Transfer {
        id: Uuid::new_v4(),
        sender: ada,
        recipient: ben,
        amount: 10,
    };
    let is_sent = send(shards, gift).await?;
    println!("no money       sent: {is_sent}");

    let from_ben = Transfer {
        id: Uuid::new_v4(),
        sender: ben,
        recipient: ada,
        ..gift
    };
    // The first answer may have been lost.
    send(shards, from_ben).await?;
    send(shards, from_ben).await?;
    let from = Shards::number(ben);
    deliver(shards, from, true).await?;
    deliver(shards, from, false).await?;
    send(shards, from_ben).await?;
    deliver(shards, from, false).await?;
    println!(
        "transfer       sent three times and delivered three times, and counted once: {} and {}",
        account(shards, ben).await?,
        account(shards, ada).await?,
    );

    // Two senders on one shard and one on the other, and more workers than connections.
    for (sender, recipient) in [(ada, ben), (cleo, ben), (ben, cleo)] {
        let id = Uuid::new_v4();
        let transfer = Transfer {
            id,
            sender,
            recipient,
            ..gift
        };
        send(shards, transfer).await?;
    }
    let mut workers = JoinSet::new();
    for number in 0..4 * CONNECTIONS {
        let shards = shards.clone();
        workers.spawn(async move { deliver(&shards, number % 2, false).await });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    println!(
        "both ways      two who share a shard have {} and {}, and the other has {}",
        account(shards, ada).await?,
        account(shards, cleo).await?,
        account(shards, ben).await?,
    );
    Ok(())
}

async fn account(shards: &Shards, tenant_id: i64) -> Outcome<i64> {
    Ok(balance(&mut *shards.of(tenant_id).get().await?, tenant_id).await?)
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
