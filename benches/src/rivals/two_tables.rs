//! The rival for leases: a table of locks and a table of fence counters, kept consistent by an
//! advisory lock, with a transaction for each step. Written from the description of such a backend,
//! on the same driver, with prepared statements.

use crate::rivals::diesel_async::connect;
use crate::side::{Open, Operation};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer};
use diesel::upsert::excluded;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

diesel::table! {
    rival_locks (key) {
        key -> Text,
        lock_id -> Text,
        expires_at_ms -> BigInt,
        acquired_at_ms -> BigInt,
        fence -> Text,
        user_key -> Text,
    }
}

diesel::table! {
    rival_fences (fence_key) {
        fence_key -> Text,
        fence -> BigInt,
    }
}

const NOW: &str = "(extract(epoch FROM now()) * 1000)::bigint";

pub(crate) struct TwoTables {
    conn: AsyncPgConnection,
    key: String,
    number: i64,
    next: u64,
}

impl TwoTables {
    pub(crate) async fn set_up(conn: &mut AsyncPgConnection) {
        let made = conn.batch_execute(
            "CREATE TABLE IF NOT EXISTS rival_locks (key text PRIMARY KEY, lock_id text NOT NULL, \
             expires_at_ms bigint NOT NULL, acquired_at_ms bigint NOT NULL, fence text NOT NULL, user_key text NOT NULL); \
             CREATE UNIQUE INDEX IF NOT EXISTS rival_locks_lock_id ON rival_locks (lock_id); \
             CREATE INDEX IF NOT EXISTS rival_locks_expires ON rival_locks (expires_at_ms); \
             CREATE TABLE IF NOT EXISTS rival_fences (fence_key text PRIMARY KEY, fence bigint NOT NULL DEFAULT 0)",
        );
        made.await.expect("the tables");
    }

    pub(crate) fn new(conn: AsyncPgConnection, key: String) -> Self {
        let number = key
            .bytes()
            .fold(0, |number, byte| number * 31 + i64::from(byte));
        Self {
            conn,
            key,
            number,
            next: 0,
        }
    }

    /// Seven round trips: BEGIN, five statements, COMMIT.
    async fn acquire(&mut self) -> QueryResult<String> {
        self.next += 1;
        let lock_id = format!("{}-{}", self.key, self.next);
        let (key, number) = (self.key.as_str(), self.number);
        self.conn
            .transaction(async |conn| {
                sql::<Integer>("SELECT 1 FROM pg_advisory_xact_lock(")
                    .bind::<BigInt, _>(number)
                    .sql(")")
                    .execute(conn)
                    .await?;
                let is_held: Option<bool> = rival_locks::table
                    .find(key)
                    .select(sql::<Bool>(&format!("expires_at_ms > {NOW}")))
                    .for_update()
                    .first(conn)
                    .await
                    .optional()?;
                if is_held == Some(true) {
                    return Err(diesel::NotFound);
                }
                diesel::insert_into(rival_fences::table)
                    .values((rival_fences::fence_key.eq(key), rival_fences::fence.eq(0)))
                    .on_conflict_do_nothing()
                    .execute(conn)
                    .await?;
                let fence: i64 = diesel::update(rival_fences::table.find(key))
                    .set(rival_fences::fence.eq(rival_fences::fence + 1))
                    .returning(rival_fences::fence)
                    .get_result(conn)
                    .await?;
                let now = || sql::<BigInt>(NOW);
                diesel::insert_into(rival_locks::table)
                    .values((
                        rival_locks::key.eq(key),
                        rival_locks::lock_id.eq(&lock_id),
                        rival_locks::expires_at_ms.eq(now().sql(" + 60000")),
                        rival_locks::acquired_at_ms.eq(now()),
                        rival_locks::fence.eq(format!("{fence:015}")),
                        rival_locks::user_key.eq(key),
                    ))
                    .on_conflict(rival_locks::key)
                    .do_update()
                    .set((
                        rival_locks::lock_id.eq(excluded(rival_locks::lock_id)),
                        rival_locks::expires_at_ms.eq(excluded(rival_locks::expires_at_ms)),
                        rival_locks::acquired_at_ms.eq(excluded(rival_locks::acquired_at_ms)),
                        rival_locks::fence.eq(excluded(rival_locks::fence)),
                    ))
                    .execute(conn)
                    .await
            })
            .await?;
        Ok(lock_id)
    }

    /// Four round trips: BEGIN, SELECT, DELETE, COMMIT.
    async fn release(&mut self, lock_id: &str) -> QueryResult<usize> {
        self.conn
            .transaction(async |conn| {
                let is_held: bool = rival_locks::table
                    .filter(rival_locks::lock_id.eq(lock_id))
                    .select(sql::<Bool>(&format!("expires_at_ms > {NOW}")))
                    .for_update()
                    .first(conn)
                    .await?;
                if !is_held {
                    return Err(diesel::NotFound);
                }
                let held = rival_locks::table.filter(rival_locks::lock_id.eq(lock_id));
                diesel::delete(held).execute(conn).await
            })
            .await
    }
}

impl Open for TwoTables {
    async fn open(url: &str, key: i64) -> Self {
        let mut conn = connect(url).await;
        Self::set_up(&mut conn).await;
        Self::new(conn, format!("job:{key}"))
    }
}

impl Operation for TwoTables {
    async fn operate(&mut self) {
        let lock_id = self.acquire().await.expect("nobody else wants it");
        let deleted = self.release(&lock_id).await.expect("it was held");
        assert_eq!(deleted, 1, "it was held");
    }
}
