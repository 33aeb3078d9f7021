use advisory_runtime::claim::{Claim, Error, Worker};
use diesel_async::AsyncPgConnection;

diesel::table! {
    jobs (id) {
        id -> BigInt,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

#[derive(diesel::Queryable, diesel::Selectable, Claim)]
#[diesel(table_name = jobs)]
struct Job {
    id: i64,
}

async fn worker(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Worker::<Job, _>::new(conn, "worker").run(async |_| Ok(())).await
}

fn main() {}
