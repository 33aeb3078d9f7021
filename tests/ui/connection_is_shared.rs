use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct State {
    conn: AsyncPgConnection,
}

#[advisory_lock(key = "a")]
async fn parameter(conn: &AsyncPgConnection) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "b", conn = state.conn)]
async fn field(state: &State) -> QueryResult<()> {
    _ = state;
    Ok(())
}

#[advisory_lock(key = "c")]
fn blocking(conn: &diesel::PgConnection) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

impl State {
    #[advisory_lock(key = "d", conn = self.conn)]
    async fn field_of_self(&self) -> QueryResult<()> {
        Ok(())
    }
}

fn main() {}
