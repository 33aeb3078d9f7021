use advisory_runtime::migrations;
use advisory_tests::Database;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

crate::guide::runs_the_page!("migrations", "migrations.rs");

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

async fn start(url: &str) -> anyhow::Result<()> {
    migrations::run(url, MIGRATIONS).await?;
    // … open the pool, and serve …
    Ok(())
}

mod with_steps {
    use super::MIGRATIONS;
    use advisory_runtime::migrations::{Error, Migrator, Report};
    use std::time::Duration;

    pub(super) async fn migrate(url: &str) -> Result<Report, Error> {
        Migrator::new(MIGRATIONS)
            .wait(Duration::from_secs(300)) // then `TimedOut`, with who held the lock
            .on_step(|step| eprintln!("{step}"))
            .run(url)
            .await
    }
}

mod several {
    use super::MIGRATIONS;
    use advisory_runtime::migrations::{self, Error, Migrator};
    use advisory_tests::Database;
    use diesel_async::AsyncPgConnection;

    /// Those of a library.
    mod billing {
        use diesel_migrations::EmbeddedMigrations;

        pub(super) const MIGRATIONS: EmbeddedMigrations = EmbeddedMigrations::new(&[]);
    }

    /// Databases from before Diesel have the first migration's tables.
    const MARK: &str = "INSERT INTO __diesel_schema_migrations (version) \
    SELECT '20260101000000' WHERE to_regclass('booking') IS NOT NULL ON CONFLICT DO NOTHING";

    /// What the roles may do, whatever tables there are.
    const GRANT: &str = "GRANT SELECT ON ALL TABLES IN SCHEMA public TO pg_monitor";

    async fn migrate_all(conn: AsyncPgConnection) -> Result<AsyncPgConnection, Error> {
        let migrator = Migrator::new(MIGRATIONS)
            .and(billing::MIGRATIONS)
            .before(|conn| Ok(conn.batch_execute(MARK)?))
            .after(|conn| Ok(conn.batch_execute(GRANT)?));
        let (_report, conn) = migrator.run_on(conn).await?;
        Ok(conn)
    }

    #[tokio::test]
    async fn a_database_from_before_diesel_keeps_its_first_tables() {
        let db = Database::create().await;
        migrations::run(db.url(), MIGRATIONS).await.unwrap();
        db.run("DELETE FROM __diesel_schema_migrations WHERE version = (SELECT min(version) FROM __diesel_schema_migrations)")
            .await;
        let conn = migrate_all(db.connect().await).await.unwrap();
        drop(conn);
        let applied = "SELECT count(*) FROM __diesel_schema_migrations";
        assert_eq!(db.count(applied).await, 4);
        let may = "SELECT count(*) FROM pg_roles WHERE rolname = 'pg_monitor' AND has_table_privilege(oid, 'booking', 'SELECT')";
        assert_eq!(db.count(may).await, 1);
        db.until_no_locks().await;
    }
}

/// The migrations of the example `migrate`, which record that they ran.
#[tokio::test]
async fn of_several_one_migrates_and_all_start() {
    let db = Database::create().await;
    let url = db.url();
    let (started, migrated, too) = tokio::join!(
        async { tokio::try_join!(start(url), start(url), start(url)) },
        with_steps::migrate(url),
        with_steps::migrate(url)
    );
    started.unwrap();
    for report in [migrated.unwrap(), too.unwrap()] {
        assert!([0, 4].contains(&report.applied.len()), "{report:?}");
    }
    let ran = "SELECT count(*) * 10 + count(DISTINCT migration) FROM history";
    assert_eq!(db.count(ran).await, 33, "three migrations, each once");
    let applied = "SELECT count(*) FROM __diesel_schema_migrations";
    assert_eq!(db.count(applied).await, 4);
    db.until_no_locks().await;
}
