use advisory_runtime::{Pool, PoolError, advisory_lock};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

struct Databases {
    primary: deadpool::Pool<AsyncPgConnection>,
    standby: deadpool::Pool<AsyncPgConnection>,
}

/// Locks are on the primary.
impl Pool for Databases {
    type Connection<'p> = deadpool::Object<AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
        self.primary.connection().await
    }
}

#[advisory_lock(key = "room:<room>", name = "room", pool = databases)]
async fn clear(databases: &Databases, room: i64) -> QueryResult<usize> {
    let delete = diesel::sql_query("DELETE FROM booking WHERE room = $1");
    delete.bind::<BigInt, _>(room).execute(conn).await
}

#[tokio::test]
async fn a_call_takes_its_connection_from_the_primary() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8); INSERT INTO booking VALUES (7)")
        .await;
    let databases = Databases {
        primary: db.deadpool(1),
        standby: db.deadpool(1),
    };
    assert_eq!(clear(&databases, 7).await.unwrap(), 1);
    assert_eq!(databases.standby.status().size, 0);
    db.until_no_locks().await;
}
