//! Migrations that change the session: its `search_path`, or a transaction that a panic leaves
//! open.

use crate::gated_migrations::{both, start};
use advisory_runtime::blocking;
use advisory_runtime::migrations::Report;
use advisory_tests::Database;
use advisory_tests::futures::spawn_blocking;
use advisory_tests::written_migrations::Written;
use diesel::connection::{BoxableConnection, SimpleConnection as _};
use diesel::migration::{Migration, MigrationMetadata, MigrationName, MigrationSource};
use diesel::pg::Pg;
use diesel::sql_types::Text;
use diesel::{Connection as _, RunQueryDsl as _};

const BASELINE: &str = "SET statement_timeout = 0; \
    SELECT pg_catalog.set_config('search_path', '', false); \
    CREATE TABLE public.account (id int8)";

fn baseline(name: &'static str) -> Written {
    Written(vec![
        (name, BASELINE),
        ("2", "ALTER TABLE account ADD balance int8"),
        (
            "3 concurrently",
            "CREATE INDEX CONCURRENTLY ON account (id)",
        ),
    ])
}

#[tokio::test]
async fn a_baseline_that_empties_the_search_path_is_followed_by_others() {
    for name in ["1", "1 concurrently"] {
        let db = Database::create().await;
        let [first, again] = both(&db, baseline(name)).await;
        assert_eq!(first.unwrap().applied, [name, "2", "3 concurrently"]);
        assert_eq!(again.unwrap(), Report::default());
        let db = Database::create().await;
        let run = start(&db, true, baseline(name));
        assert_eq!(run.await.unwrap().unwrap().applied.len(), 3);
        db.until_no_locks().await;
    }
}

#[derive(diesel::QueryableByName)]
struct Shown {
    #[diesel(sql_type = Text)]
    search_path: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_keeps_its_search_path_after_a_run() {
    let db = Database::create().await;
    let mut conn = db.establish();
    conn.batch_execute("CREATE SCHEMA app; SET search_path = app, public")
        .unwrap();
    let mut shown = |source| {
        let run = blocking::migrations::run_on(&mut conn, source);
        let shown = diesel::sql_query("SHOW search_path").get_result::<Shown>(&mut conn);
        (run.is_ok(), shown.unwrap().search_path)
    };
    let kept = "app, public".to_owned();
    assert_eq!(shown(baseline("1")), (true, kept.clone()));
    let fails = Written(vec![
        (
            "4 concurrently",
            "SELECT pg_catalog.set_config('search_path', '', false)",
        ),
        ("5 concurrently", "SET search_path = nowhere"),
        (
            "6 concurrently",
            "SELECT pg_catalog.set_config('search_path', '', false)",
        ),
        ("7 concurrently", "SELECT 1/0"),
    ]);
    assert_eq!(shown(fails), (false, kept));
    assert_eq!(
        db.count("SELECT count(*) FROM app.__diesel_schema_migrations")
            .await,
        6
    );
}

/// Its first migration panics after its first statement, inside the transaction that Diesel began.
#[derive(Clone)]
struct Panicking(Written);

struct PanicsAfter(Box<dyn Migration<Pg>>);

impl MigrationSource<Pg> for Panicking {
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<Pg>>>> {
        let all = self.0.migrations()?.into_iter();
        Ok(all.map(|one| Box::new(PanicsAfter(one)) as _).collect())
    }
}

impl Migration<Pg> for PanicsAfter {
    fn run(&self, conn: &mut dyn BoxableConnection<Pg>) -> diesel::migration::Result<()> {
        self.0.run(conn)?;
        panic!("the migration's own panic")
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<Pg>) -> diesel::migration::Result<()> {
        self.0.revert(conn)
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        self.0.metadata()
    }

    fn name(&self) -> &dyn MigrationName {
        self.0.name()
    }
}

#[tokio::test]
async fn a_panic_in_a_migration_leaves_no_transaction_on_the_callers_connection() {
    let db = Database::create().await;
    let mut conn = db.establish();
    let (mut conn, panicked) = spawn_blocking(move || {
        let source = Panicking(Written(vec![("1", "CREATE TABLE a (id int8)")]));
        let run = std::panic::AssertUnwindSafe(|| {
            drop(blocking::migrations::run_on(&mut conn, source));
        });
        let panicked = std::panic::catch_unwind(run).is_err();
        (conn, panicked)
    })
    .await
    .unwrap();
    assert!(panicked);
    db.until_no_locks().await;
    // Whatever the connection accepts now is committed.
    let next = conn.transaction(|conn| diesel::sql_query("CREATE TABLE b (id int8)").execute(conn));
    let tables =
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename IN ('a', 'b')";
    assert_eq!(db.count(tables).await, i64::from(next.is_ok()));
}
