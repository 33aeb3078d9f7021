//! Locks at the node that has the rows: whom they exclude, and what moves, lost messages and ends
//! do to them.

use super::cluster::{
    Cluster, INTERNAL, Node, assert_deadlock, cluster, execute, number, pause, row,
};
use advisory_runtime::{Error, advisory_lock};
use advisory_tests::assert_error;
use diesel::result::Error as DieselError;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

diesel::table! {
    citus_balance (id) {
        id -> BigInt,
        balance -> BigInt,
    }
}

/// The sessions of a node that wait for a lock.
const WAITS: &str = "SELECT count(*) AS number FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted";

/// The key of a tenant who has no row.
const NOBODY: i64 = 1_000_003;

/// Creates the table of balances, as [`Cluster::accounts`] does.
async fn set_up(cluster: &Cluster) -> i64 {
    cluster.accounts("citus_balance").await
}

impl Cluster {
    /// The balance of tenant 1.
    async fn balance(&self) -> i64 {
        let balance = "SELECT balance AS number FROM citus_balance WHERE id = 1";
        self.coordinator.number(balance).await
    }

    /// The ports of the node that has a tenant's rows, and of the worker that has not.
    async fn ports(&self, id: i64) -> [i64; 2] {
        let port = format!(
            "SELECT nodeport::int8 AS number FROM pg_dist_shard_placement WHERE shardid = \
             get_shard_id_for_distribution_column('citus_balance', {id})"
        );
        let port = self.coordinator.number(&port).await;
        let other = format!(
            "SELECT nodeport::int8 AS number FROM pg_dist_node WHERE groupid <> 0 AND nodeport <> {port}"
        );
        [port, self.coordinator.number(&other).await]
    }

    fn at(&self, port: i64) -> &Node {
        let mut nodes = self.nodes().into_iter();
        let is_there = |node: &&Node| node.url().contains(&format!(":{port}/"));
        nodes.find(is_there).unwrap()
    }

    /// The statement that moves a tenant's shard to the other worker.
    async fn moves(&self, id: i64, mode: &str) -> String {
        let [from, to] = self.ports(id).await;
        format!(
            "SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('citus_balance', {id}), \
             '127.0.0.1', {from}, '127.0.0.1', {to}, '{mode}')"
        )
    }
}

/// Reads a balance, and writes it with one more after a while: two calls at once lose one of them.
#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id))]
async fn add(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    add_slowly(conn, id).await
}

/// The same, under the lock of the node that the client is connected to.
#[advisory_lock(key = "citus-balance-here:<id>", pool = pool)]
async fn add_here(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    add_slowly(conn, id).await
}

async fn add_slowly(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    let read = format!("SELECT balance AS number FROM citus_balance WHERE id = {id}");
    let balance = number(conn, &read).await + 1;
    pause(Duration::from_millis(10)).await;
    let write = format!("UPDATE citus_balance SET balance = {balance} WHERE id = {id}");
    execute(conn, &write).await?;
    Ok(())
}

#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id), handle = lock)]
async fn hold<F: Future<Output = ()>>(
    pool: &Pool<AsyncPgConnection>,
    id: i64,
    body: F,
) -> Result<(), Error> {
    lock.check(conn).await?;
    body.await;
    lock.check(conn).await
}

#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id), wait = "never", on_held = Ok(false))]
async fn is_free(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<bool, Error> {
    _ = conn;
    Ok(true)
}

#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id), wait = "300ms")]
async fn wait(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id), wait = "20s", poll = "20ms")]
async fn poll(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", at = (citus_balance::id, id))]
async fn fail(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    execute(conn, &format!("SELECT {id}")).await?;
    Err(Error::Database(DieselError::RollbackTransaction))
}

type Errors = BTreeMap<String, u32>;

/// Whether another task finds the lock free: this one may hold it.
async fn is_free_for_another(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<bool, Error> {
    let pool = pool.clone();
    let free = tokio::spawn(async move { is_free(&pool, id).await });
    free.await.unwrap()
}

/// 60 calls, 20 through each node, 2 of them at a time. Counts the errors by their texts.
async fn sixty<F>(cluster: &Cluster, call: fn(Pool<AsyncPgConnection>) -> F, errors: &mut Errors)
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut tasks = Vec::new();
    for node in cluster.nodes() {
        let pool = node.pool(2);
        for _ in 0..2 {
            let pool = pool.clone();
            tasks.push(tokio::spawn(async move {
                let mut errors = Vec::new();
                for _ in 0..10 {
                    if let Err(error) = call(pool.clone()).await {
                        errors.push(error);
                    }
                }
                errors
            }));
        }
    }
    for task in tasks {
        for error in task.await.unwrap() {
            *errors.entry(format!("{error:?}")).or_insert(0) += 1;
        }
    }
}

async fn sixty_add_one(cluster: &Cluster) {
    let mut errors = Errors::new();
    sixty(
        cluster,
        |pool| async move { add(&pool, 1).await },
        &mut errors,
    )
    .await;
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(cluster.balance().await, 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_all_nodes_exclude_each_other() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    sixty_add_one(&cluster).await;
    let mut errors = Errors::new();
    cluster
        .run("UPDATE citus_balance SET balance = 0 WHERE id = 1")
        .await;
    sixty(
        &cluster,
        |pool| async move { add_here(&pool, 1).await },
        &mut errors,
    )
    .await;
    assert!(errors.is_empty(), "{errors:?}");
    let kept = cluster.balance().await;
    assert!(kept < 60, "{kept}");
    row(
        "60 calls with `at` that read and write one tenant's row, 20 through each of three nodes",
        "60 kept",
    );
    row("the same without `at`", &format!("{kept} of 60 kept"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_without_rows_has_a_lock_and_each_wait_ends() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    let pools = cluster.nodes().map(|node| node.pool(2));
    for (holder, others) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
        hold(&pools[holder], NOBODY, async {
            // In tasks of their own: this one holds the lock.
            for other in others {
                let pool = pools[other].clone();
                let (free, waited) = tokio::spawn(async move {
                    let free = is_free(&pool, NOBODY).await;
                    (free, wait(&pool, NOBODY).await)
                })
                .await
                .unwrap();
                assert!(!free.unwrap());
                assert_error!(waited, TimedOut);
                // Another tenant's is free.
                assert!(is_free_for_another(&pools[other], 1).await.unwrap());
            }
        })
        .await
        .unwrap();
    }
    for pool in &pools {
        assert!(is_free(pool, NOBODY).await.unwrap());
        let status = pool.status();
        assert!(status.size <= 2, "{status:?}");
    }
    let (polled, held) = (pools[1].clone(), pools[0].clone());
    let (first, second) = tokio::join!(
        hold(&held, NOBODY, pause(Duration::from_millis(200))),
        async {
            pause(Duration::from_millis(50)).await;
            tokio::spawn(async move { poll(&polled, NOBODY).await })
                .await
                .unwrap()
        }
    );
    first.unwrap();
    second.unwrap();
    row(
        "`wait = \"never\"`, `wait = \"300ms\"` and `poll` through two nodes, for a tenant without a row, whose lock is held through the third",
        "not available, timed out, and taken after the end",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_wait_leaves_nobody_at_the_node() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    let [port, _] = cluster.ports(1).await;
    let node = cluster.at(port);
    let pools = cluster.nodes().map(|node| node.pool(2));
    let is_quiet = "SELECT (count(*) = 0)::int::int8 AS number FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted";
    for waiter in &pools {
        hold(&pools[0], 1, async {
            let waiter = waiter.clone();
            let waiting = tokio::spawn(async move { add(&waiter, 1).await });
            node.until("a wait", WAITS).await;
            waiting.abort();
            node.until("no wait", is_quiet).await;
        })
        .await
        .unwrap();
        assert!(is_free(waiter, 1).await.unwrap());
    }
    row(
        "a wait for a lock with `at` that is dropped, through each node",
        "no session waits at the node of the rows, and the lock is free after its holder's end",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_that_is_rolled_back_releases_the_lock() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    for node in cluster.nodes() {
        let mut conn = node.connect().await;
        let pool = cluster.workers[0].pool(2);
        let outer = conn.transaction(async |conn| {
            assert!(fail(conn, 1).await.is_err());
            assert!(is_free_for_another(&pool, 1).await.unwrap());
            execute(conn, "UPDATE citus_balance SET balance = 7 WHERE id = 1").await
        });
        outer.await.unwrap();
    }
    row(
        "`Err` of a call with `at` inside a transaction",
        "the lock is free, and the transaction goes on",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_with_a_row_is_found_through_two_nodes() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    let pool = cluster.workers[1].pool(2);
    let mut conn = cluster.workers[0].connect().await;
    let each_has_one = Barrier::new(2);
    let update = "UPDATE citus_balance SET balance = 1 WHERE id = 1";
    #[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id))]
    async fn lock_then_row(
        pool: &Pool<AsyncPgConnection>,
        id: i64,
        each_has_one: &Barrier,
        update: &str,
    ) -> Result<(), Error> {
        each_has_one.wait().await;
        execute(conn, update).await?;
        Ok(())
    }
    #[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", at = (citus_balance::id, id))]
    async fn lock(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
        _ = conn;
        Ok(())
    }
    let (one, other) = tokio::join!(
        lock_then_row(&pool, 1, &each_has_one, update),
        conn.transaction(async |conn| {
            execute(conn, update).await?;
            each_has_one.wait().await;
            lock(conn, 1).await
        })
    );
    assert_deadlock(one, other);
    row(
        "a lock with `at` and a row of its tenant, in two orders, through two workers",
        "one call ends with 40P01, the other goes on",
    );
}

/// Adds one to the balances of two tenants, whose rows are on two nodes, under the lock of the
/// second.
#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id))]
async fn add_to_two(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    let add = format!("UPDATE citus_balance SET balance = balance + 1 WHERE id IN (1, {id})");
    execute(conn, &add).await?;
    Ok(())
}

#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id))]
async fn balance(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<i64, Error> {
    let read = format!("SELECT balance AS number FROM citus_balance WHERE id = {id}");
    Ok(number(conn, &read).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_keeps_the_lock() {
    let Some(cluster) = cluster() else { return };
    let second = set_up(&cluster).await;
    let pool = cluster.coordinator.pool(3);
    let [port, _] = cluster.ports(second).await;
    let node = cluster.at(port);
    cluster.coordinator.hold_answers(true).await;
    let (added, ()) = tokio::join!(add_to_two(&pool, second), async {
        // Both workers have prepared, and the decision is on disk.
        cluster.coordinator.until_unanswered().await;
        node.terminate(INTERNAL).await;
        cluster.coordinator.hold_answers(false).await;
    });
    added.unwrap();
    let others = cluster.nodes().map(|node| node.pool(2));
    for other in &others {
        assert!(!is_free(other, second).await.unwrap());
    }
    let next = tokio::spawn({
        let pool = others[1].clone();
        async move { balance(&pool, second).await }
    });
    node.until("a wait", WAITS).await;
    cluster.run("SELECT recover_prepared_transactions()").await;
    assert_eq!(next.await.unwrap().unwrap(), 1);
    row(
        "a call with `at` that wrote on two workers, COMMIT PREPARED lost at the one of its tenant",
        "`Ok`; the next holder waits until the recovery of Citus has run, and reads the new row",
    );
}

/// What happens without the write that goes before the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_alone_does_not_keep_its_shard_from_moving() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    let take =
        "BEGIN; SELECT pg_advisory_xact_lock(7 + 0 * count(*)) FROM citus_balance WHERE id = 1";
    let (mut one, mut other) = (
        cluster.coordinator.connect().await,
        cluster.coordinator.connect().await,
    );
    one.batch_execute(take).await.unwrap();
    let moves = cluster.moves(1, "block_writes").await;
    cluster.run(&moves).await;
    // Both hold it.
    other.batch_execute(take).await.unwrap();
    row(
        "the query that takes a lock, without the write in front of it, and a move of the shard",
        "two sessions hold one lock, at the old node and at the new one",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_waits_for_the_holder_and_new_calls_for_the_move() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    for (mode, node) in ["block_writes", "force_logical"]
        .into_iter()
        .flat_map(|mode| cluster.nodes().map(|node| (mode, node)))
    {
        let pool = node.pool(2);
        let moves = cluster.moves(1, mode).await;
        let [_, target] = cluster.ports(1).await;
        let coordinator = cluster.coordinator.clone();
        let mut under_way = None;
        hold(&pool, 1, async {
            under_way = Some(tokio::spawn(async move { coordinator.run(&moves).await }));
            // Citus locks a shard by its number, for the client's node and for all others.
            let waits = "SELECT count(*) AS number FROM pg_locks WHERE locktype = 'advisory' AND objsubid > 2 AND NOT granted";
            if mode == "block_writes" {
                node.until("a move that waits", waits).await;
            }
            pause(Duration::from_millis(500)).await;
            assert_ne!(cluster.ports(1).await[0], target, "{mode}");
        })
        .await
        .unwrap();
        under_way.unwrap().await.unwrap();
        assert_eq!(cluster.ports(1).await[0], target, "{mode}");
    }
    row(
        "a move of the shard, `block_writes` and `force_logical`, while a call with `at` runs through each node",
        "the move ends after the call",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_stay_exact_while_their_shard_moves() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    let cluster = Arc::new(cluster);
    let is_over = Arc::new(AtomicBool::new(false));
    let moving = tokio::spawn({
        let (cluster, is_over) = (Arc::clone(&cluster), Arc::clone(&is_over));
        async move {
            let (mut moves, mut refusals) = (0, BTreeMap::new());
            while !is_over.load(Ordering::Relaxed) {
                let mode = ["block_writes", "force_logical"][moves % 2];
                let sql = cluster.moves(1, mode).await;
                let mut conn = cluster.coordinator.connect().await;
                match conn.batch_execute(&sql).await {
                    Ok(()) => moves += 1,
                    Err(error) => *refusals.entry(error.to_string()).or_insert(0) += 1,
                }
            }
            (moves, refusals)
        }
    });
    let (mut calls, mut errors) = (0, BTreeMap::new());
    for _ in 0..5 {
        calls += 60;
        sixty(
            &cluster,
            |pool| async move { add(&pool, 1).await },
            &mut errors,
        )
        .await;
    }
    is_over.store(true, Ordering::Relaxed);
    let (moves, refusals) = moving.await.unwrap();
    let kept = cluster.balance().await;
    let failed: u32 = errors.values().sum();
    assert_eq!(kept, i64::from(calls - failed), "{errors:#?}");
    assert!(moves > 1, "{refusals:#?}");
    row(
        &format!(
            "{calls} calls with `at` through three nodes, while their shard moves {moves} times"
        ),
        &format!("{kept} kept, {failed} refused: {errors:?}; moves refused: {refusals:?}"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_waits_for_the_holder_and_calls_stay_exact() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    let cluster = Arc::new(cluster);
    let splitter = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move {
            let mut splits = 0;
            let mut refusals = BTreeMap::new();
            for mode in ["block_writes", "force_logical", "block_writes"] {
                pause(Duration::from_millis(300)).await;
                let [_, to] = cluster.ports(1).await;
                let split = format!(
                    "SELECT citus_split_shard_by_split_points(shardid, \
                     ARRAY[((shardminvalue::int8 + shardmaxvalue::int8) / 2)::text], \
                     ARRAY[(SELECT nodeid FROM pg_dist_node WHERE nodeport = {to}), (SELECT nodeid FROM pg_dist_node WHERE nodeport = {to})], \
                     '{mode}') FROM pg_dist_shard WHERE shardid = get_shard_id_for_distribution_column('citus_balance', 1)"
                );
                let mut conn = cluster.coordinator.connect().await;
                match conn.batch_execute(&split).await {
                    Ok(()) => splits += 1,
                    Err(error) => *refusals.entry(error.to_string()).or_insert(0) += 1,
                }
            }
            (splits, refusals)
        }
    });
    let (mut calls, mut errors) = (0, BTreeMap::new());
    while !splitter.is_finished() {
        calls += 60;
        sixty(
            &cluster,
            |pool| async move { add(&pool, 1).await },
            &mut errors,
        )
        .await;
    }
    let (splits, refusals) = splitter.await.unwrap();
    let kept = cluster.balance().await;
    let failed: u32 = errors.values().sum();
    assert_eq!(kept, i64::from(calls - failed), "{errors:#?}");
    assert!(splits > 0, "{refusals:#?}");
    row(
        &format!(
            "{calls} calls with `at` through three nodes, while their shard is split {splits} times"
        ),
        &format!("{kept} kept, {failed} refused: {errors:?}; splits refused: {refusals:?}"),
    );
}

/// Returns when the lock is free, for clients of every node.
async fn until_free(cluster: &Cluster, id: i64) {
    for node in cluster.nodes() {
        let pool = node.pool(1);
        let begun = Instant::now();
        while !matches!(is_free(&pool, id).await, Ok(true)) {
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_session_or_node_ends_commits_nothing_and_frees_the_lock() {
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    let [port, _] = cluster.ports(1).await;
    let node = cluster.at(port);
    let ours =
        "FROM pg_stat_activity WHERE query LIKE '%citus-balance%' AND pid <> pg_backend_pid()";
    for (client, ends) in [
        (&cluster.coordinator, "its own session"),
        (&cluster.coordinator, "the session at the node"),
        (&cluster.coordinator, "the node"),
        (node, "the node"),
    ] {
        let pool = client.pool(1);
        let held = write_while(&pool, 1, async {
            match ends {
                "its own session" => client.terminate(ours).await,
                "the session at the node" => node.terminate(INTERNAL).await,
                _ => node.crash().await,
            }
        });
        assert!(held.await.is_err(), "{ends}");
        until_free(&cluster, 1).await;
        assert_eq!(cluster.balance().await, 0, "{ends}");
    }
    row(
        "a holder with `at` that has written, whose session ends, or that of the node of the rows, or that node",
        "an error, the write is not there, and the lock is free for clients of all nodes",
    );
}

/// Writes, and holds a tenant's lock while the future runs.
#[advisory_lock(key = "citus-balance:<id>", name = "citus-balance", pool = pool, at = (citus_balance::id, id))]
async fn write_while<F: Future<Output = ()>>(
    pool: &Pool<AsyncPgConnection>,
    id: i64,
    body: F,
) -> Result<(), Error> {
    let write = format!("UPDATE citus_balance SET balance = 9 /* citus-balance */ WHERE id = {id}");
    execute(conn, &write).await?;
    body.await;
    Ok(())
}

/// The copies of a reference table are on all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_table_excludes_too_and_its_other_keys_as_well() {
    let Some(cluster) = cluster() else { return };
    cluster
        .run(
            "DROP TABLE IF EXISTS citus_balance; CREATE TABLE citus_balance (id int8 PRIMARY KEY, balance int8 NOT NULL); \
             SELECT create_reference_table('citus_balance'); INSERT INTO citus_balance VALUES (1, 0)",
        )
        .await;
    sixty_add_one(&cluster).await;
    let pools = cluster.nodes().map(|node| node.pool(2));
    let mut seen = Vec::new();
    hold(&pools[0], 1, async {
        for (pool, id) in [(&pools[1], 1), (&pools[2], 1), (&pools[1], 2)] {
            let begun = Instant::now();
            let tried = is_free_for_another(pool, id).await;
            seen.push(format!("{id}: {tried:?} in {:.1?}", begun.elapsed()));
        }
    })
    .await
    .unwrap();
    cluster.run("DROP TABLE citus_balance").await;
    row(
        "60 calls with `at` and a reference table, through three nodes",
        &format!("60 kept; tries through workers while 1 is held: {seen:?}"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lock_at_the_rows_costs() {
    const CALLS: u32 = 500;
    let Some(cluster) = cluster() else { return };
    set_up(&cluster).await;
    #[advisory_lock(key = "citus-cost:<id>", pool = pool)]
    async fn here(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
        let read = format!("SELECT balance AS number FROM citus_balance WHERE id = {id}");
        number(conn, &read).await;
        Ok(())
    }
    let mut costs = Vec::new();
    for node in [&cluster.coordinator, &cluster.workers[0]] {
        let pool = node.pool(1);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..CALLS {
            for (nth, times) in times.iter_mut().enumerate() {
                let begun = Instant::now();
                if nth == 0 {
                    here(&pool, 1).await.unwrap();
                } else {
                    balance(&pool, 1).await.unwrap();
                }
                times.push(begun.elapsed());
            }
        }
        for times in &mut times {
            times.sort_unstable();
            costs.push(times[times.len() / 2].as_secs_f64() * 1e3);
        }
    }
    let [without, with, worker_without, worker_with] = costs[..] else {
        panic!("{costs:?}")
    };
    row(
        "a call that reads one row, without and with `at`, median",
        &format!(
            "{without:.1} and {with:.1} ms through the coordinator, {worker_without:.1} and {worker_with:.1} ms through a worker"
        ),
    );
}
