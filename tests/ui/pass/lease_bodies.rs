#![deny(warnings)]
use advisory_runtime::lease::{Error, Lease};
use advisory_runtime::{Pool as _, PoolError, advisory_lease};
use diesel_async::pooled_connection::bb8;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _};

pub type Pool = bb8::Pool<AsyncPgConnection>;

pub struct Db {
    conn: Pool,
}

async fn conn(pool: &Pool) -> Result<<Pool as advisory_runtime::Pool>::Connection<'_>, PoolError> {
    pool.connection().await
}

async fn update(conn: &mut AsyncPgConnection) -> Result<usize, Error> {
    diesel::sql_query("UPDATE").execute(conn).await.map_err(Error::Database)
}

async fn complete(lease: &Lease, conn: &mut AsyncPgConnection) -> Result<(), Error> {
    lease.complete(conn).await
}

#[advisory_lease(key = "let", pool = pool)]
pub async fn by_let(pool: &Pool) -> Result<usize, Error> {
    let mut conn = pool.connection().await?;
    update(&mut conn).await
}

/// What the message for a body that lacks its connection recommends.
#[advisory_lease(key = "recommended", pool = db.conn)]
pub async fn as_recommended(db: &Db) -> diesel::QueryResult<usize> {
    let conn = &mut advisory_runtime::Pool::connection(&db.conn).await?;
    diesel::sql_query("UPDATE").execute(conn).await
}

#[advisory_lease(key = "let-in-a-tuple", pool = pool)]
pub async fn by_let_in_a_tuple(pool: &Pool) -> Result<usize, Error> {
    let (mut conn, _more) = (pool.connection().await?, 7);
    update(&mut conn).await
}

#[advisory_lease(key = "if-let", pool = pool)]
pub async fn by_if_let(pool: &Pool) -> Result<usize, Error> {
    if let Ok(mut conn) = pool.connection().await {
        return update(&mut conn).await;
    }
    let Ok(mut conn) = pool.connection().await else {
        return Ok(0);
    };
    update(&mut conn).await
}

#[advisory_lease(key = "match", pool = pool)]
pub async fn by_match(pool: &Pool) -> Result<usize, Error> {
    match pool.connection().await {
        Err(_) => Ok(0),
        Ok(mut conn) => update(&mut conn).await,
    }
}

#[advisory_lease(key = "for", pool = pool)]
pub async fn by_for(pool: &Pool) -> Result<usize, Error> {
    let mut all = 0;
    for mut conn in [pool.connection().await?] {
        all += update(&mut conn).await?;
    }
    Ok(all)
}

#[advisory_lease(key = "closure", pool = pool, keep = "24h", handle = lease)]
pub async fn by_closure(pool: &Pool) -> Result<usize, Error> {
    let mut taken = pool.connection().await?;
    taken
        .transaction(async |conn| {
            let updated = update(conn).await?;
            lease.complete(conn).await?;
            Ok::<_, Error>(updated)
        })
        .await
}

#[advisory_lease(key = "function", pool = pool)]
pub async fn by_function(pool: &Pool) -> Result<usize, Error> {
    async fn all(conn: &mut AsyncPgConnection) -> Result<usize, Error> {
        diesel::sql_query("UPDATE").execute(conn).await.map_err(Error::Database)
    }
    all(&mut *conn(pool).await?).await
}

#[advisory_lease(key = "parameter", pool = pool, keep = "24h")]
pub async fn by_parameter(pool: &Pool, conn: &mut AsyncPgConnection, lease: &Lease) -> Result<(), Error> {
    update(conn).await?;
    lease.complete(conn).await
}

#[advisory_lease(key = "field", pool = db.conn)]
pub async fn by_field(db: &Db) -> Result<usize, Error> {
    update(&mut *db.conn.connection().await?).await
}

macro_rules! with_connection {
    ($conn:ident, $pool:expr, $body:expr) => {{
        let mut $conn = $pool.connection().await?;
        $body
    }};
}

#[advisory_lease(key = "macro", pool = pool)]
pub async fn by_macro(pool: &Pool) -> Result<usize, Error> {
    with_connection!(conn, pool, update(&mut conn).await)
}

/// The handle of an outer lease, which has a `keep`, under the name of this call's.
#[advisory_lease(key = "handles", pool = pool, handle = lease)]
pub async fn by_another_handle(pool: &Pool, outer: &Lease) -> Result<(), Error> {
    let token = lease.token();
    let mut conn = pool.connection().await?;
    let lease = outer;
    assert!(token < lease.token());
    lease.complete(&mut *conn).await?;
    complete(lease, &mut conn).await
}

pub fn main() {}
