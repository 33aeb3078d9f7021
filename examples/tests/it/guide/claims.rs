use advisory_runtime::claim::{self, Claim, Claimed, End, Error, Schema};
use advisory_runtime::{Pool as _, PoolError};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};

const PAGE: &str = include_str!("../../../../advisory-runtime/docs/claims.md");

crate::guide::page!("claims", 1);
crate::guide::page!("claims", 2);
crate::guide::page!("claims", 3);

/// The third fails.
async fn export(id: i64) -> Result<(), Error> {
    let failed = PoolError::new("no such account").into();
    if id == 3 { Err(failed) } else { Ok(()) }
}

crate::guide::page!("claims", 5);

/// The second fails.
async fn send(id: i64) -> Result<(), Error> {
    let failed = PoolError::new("no such address").into();
    if id == 2 { Err(failed) } else { Ok(()) }
}

#[tokio::test]
async fn failed_mail_waits_with_the_pages_columns() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE mail (id bigserial PRIMARY KEY, locked_until timestamptz, locked_by text, \
             completed_at timestamptz, failed_at timestamptz, error_message text)",
    )
    .await;
    db.run(crate::guide::sql(PAGE, "ALTER TABLE mail")).await;
    db.run("INSERT INTO mail (id) SELECT generate_series(1, 3)")
        .await;
    let (pool, mut conn) = (db.bb8(2).await, db.connect().await);
    while let Some(job) = claim::next::<Mail>("one").first(&mut conn).await.unwrap() {
        assert_eq!(deliver(&pool, &job).await.is_err(), job.id == 2);
    }
    let counts = claim::counts::<Mail, _>(&mut conn).await.unwrap();
    assert_eq!((counts.completed, counts.retrying), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_share_jobs_with_the_pages_columns_and_index() {
    let db = Database::create().await;
    let columns = crate::guide::sql(PAGE, "ALTER TABLE job");
    db.run("CREATE TABLE job (id bigserial PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT clock_timestamp())")
        .await;
    db.run(columns).await;
    db.run(&claim::indexes::<Job>().join(";")).await;
    db.run("INSERT INTO job (id) SELECT generate_series(1, 20)")
        .await;
    let pool = db.bb8(4).await;
    let (one, other) = tokio::join!(work(&pool, "one"), work(&pool, "other"));
    one.and(other).unwrap();
    let completed = "SELECT count(*) FROM job WHERE completed_at IS NOT NULL";
    assert_eq!(db.count(completed).await, 19);
    let failed = "SELECT id FROM job WHERE error_message LIKE '%no such account%'";
    assert_eq!(db.count(failed).await, 3);
}

#[tokio::test]
async fn a_worker_does_each_job_until_it_is_told_to_stop() {
    let db = Database::create().await;
    db.run("CREATE TABLE job (id bigserial PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT clock_timestamp())")
        .await;
    db.run(&Schema::of("job").up()).await;
    db.run("INSERT INTO job (id) SELECT generate_series(1, 20)")
        .await;
    let open = "SELECT id::text FROM job WHERE completed_at IS NULL AND failed_at IS NULL";
    let done = db.until_empty(std::time::Duration::from_secs(30), "every job", open);
    serve(&db.bb8(4).await, done).await.unwrap();
    let failed = "SELECT id FROM job WHERE error_message LIKE '%no such account%'";
    assert_eq!(db.count(failed).await, 3);
}

#[tokio::test]
async fn each_tenant_has_one_running_row() {
    let db = Database::create().await;
    db.run("CREATE TABLE export (id bigserial PRIMARY KEY, tenant_id int8 NOT NULL)")
        .await;
    db.run(&Schema::of("export").per("tenant_id").up()).await;
    db.run("INSERT INTO export (tenant_id) VALUES (1), (1), (2)")
        .await;
    let mut conn = db.connect().await;
    let claimed = claim::next::<Export>("one").load(&mut conn, 9).await;
    let mut claimed: Vec<i64> = claimed.unwrap().iter().map(|row| row.id).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, [1, 3]);
}

/// Rows of some kinds, and a status of the user's.
mod status {
    use advisory_runtime::claim::{self, Claim, Error};
    use advisory_tests::Database;
    use diesel::prelude::*;
    use diesel_async::AsyncPgConnection;

    diesel::table! {
        job (id) {
            id -> BigInt,
            kind -> Text,
            status -> Text,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
            completed_at -> Nullable<Timestamptz>,
        }
    }

    #[derive(Queryable, Selectable, Claim)]
    #[diesel(table_name = job)]
    struct Job {
        id: i64,
    }

    crate::guide::page!("claims", 6);

    async fn send(id: i64) {
        assert_eq!(id, 2);
    }

    #[tokio::test]
    async fn a_row_of_a_kind_is_sent_and_says_so() {
        let db = Database::create().await;
        db.run(
            "CREATE TABLE job (id int8 PRIMARY KEY, kind text NOT NULL, status text NOT NULL DEFAULT 'new', \
                 locked_until timestamptz, locked_by text, completed_at timestamptz); \
             INSERT INTO job (id, kind) VALUES (1, 'fax'), (2, 'sms')",
        )
        .await;
        mail(&mut db.connect().await).await.unwrap();
        let sent = "SELECT count(*) FROM job WHERE status = 'sent' AND completed_at IS NOT NULL";
        assert_eq!(db.count(sent).await, 1);
    }
}

mod threads {
    use super::{Job, claim};
    use advisory_runtime::PoolError;
    use advisory_runtime::claim::{Claimed, Error};
    use advisory_tests::Database;
    use diesel::pg::PgConnection;
    use diesel::r2d2::{ConnectionManager, Pool};
    use std::sync::Mutex;
    use tokio::sync::oneshot;

    crate::guide::page!("claims", 4);

    /// Told of when the last job is done.
    static STOP: Mutex<Option<oneshot::Sender<()>>> = Mutex::new(None);

    fn export(id: i64) -> Result<(), Error> {
        if id == 20 {
            STOP.lock().unwrap().take();
        }
        if id == 7 {
            return Err(PoolError::new("no such account").into());
        }
        Ok(())
    }

    #[tokio::test]
    async fn threads_share_the_jobs_until_they_are_told_to_stop() {
        let db = Database::create().await;
        db.run("CREATE TABLE job (id bigserial PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT clock_timestamp())")
            .await;
        db.run(&claim::Schema::of("job").up()).await;
        db.run("INSERT INTO job (id, created_at) SELECT id, now() + id * interval '1 ms' FROM generate_series(1, 20) AS id")
            .await;
        let (stop, stopped) = oneshot::channel();
        *STOP.lock().unwrap() = Some(stop);
        let pool = db.r2d2(3);
        let served =
            tokio::task::spawn_blocking(move || serve(&pool, async { drop(stopped.await) }));
        served.await.unwrap().unwrap();
        let completed = "SELECT count(*) FROM job WHERE completed_at IS NOT NULL";
        assert_eq!(db.count(completed).await, 19);
    }
}
