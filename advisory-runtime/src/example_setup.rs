//! Hidden lines that the examples of several items share: each macro begins a function, which the
//! example ends with `# Ok(())` and `# }`.

/// A table of jobs, and the type of its rows.
macro_rules! example_of_jobs {
    () => {
        "# diesel::table! { jobs (id) {
#     id -> BigInt, kind -> Text, status -> Text, run_at -> Timestamptz, attempts -> Integer,
#     locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text>,
#     completed_at -> Nullable<Timestamptz>, failed_at -> Nullable<Timestamptz>, error_message -> Nullable<Text>,
# } }
# use advisory_runtime::claim::{Claim, Claimed, Counts, End, Error};
# use diesel::ExpressionMethods;
# #[derive(diesel::Queryable, diesel::Selectable, Claim)]
# #[diesel(table_name = jobs)]
# #[claim(order = \"run_at\", run_at, attempts, max_attempts = 5, backoff = \"10s..10m\")]
# struct Job { id: i64 }"
    };
}

/// A function that has claimed a job.
macro_rules! example_of_claims {
    () => {
        concat!(
            example_of_jobs!(),
            "
# use advisory_runtime::claim;
# use diesel_async::{AsyncConnection, AsyncPgConnection};
# async fn f(conn: &mut AsyncPgConnection, job: &Claimed<Job>) -> Result<(), Error> {"
        )
    };
}

/// A function that looks at live locks.
macro_rules! example_of_monitor {
    () => {
        "# use advisory_runtime::monitor::{self, Names, Signal};
# use diesel_async::AsyncPgConnection;
# async fn f(conn: &mut AsyncPgConnection) -> Result<(), Box<dyn std::error::Error>> {"
    };
}
