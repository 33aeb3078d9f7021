use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;

struct State {
    db: Pool<AsyncPgConnection>,
    conn: AsyncPgConnection,
}

struct Audited(AsyncPgConnection);

#[advisory_lock(key = "a")]
async fn pool(conn: Pool<AsyncPgConnection>) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "c", conn = state.db)]
async fn pool_of_a_field(state: &mut State) -> QueryResult<()> {
    _ = state;
    Ok(())
}

#[advisory_lock(key = "d", conn = pool.get().await)]
async fn result(pool: &Pool<AsyncPgConnection>) -> anyhow::Result<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "f")]
async fn wrapper(conn: &mut Audited) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "g")]
async fn blocking(conn: &mut diesel::PgConnection) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "j")]
async fn generic_without_the_bound<C: diesel_async::AsyncConnection<Backend = diesel::pg::Pg>>(conn: &mut C) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "k", conn = dbb.conn)]
async fn misspelt(db: &mut State) -> QueryResult<()> {
    _ = (conn, db);
    Ok(())
}

#[advisory_lock(key = "l", conn = self.conn)]
async fn of_self_in_a_free_function(db: &mut State) -> QueryResult<()> {
    _ = (conn, db);
    Ok(())
}

fn main() {}
