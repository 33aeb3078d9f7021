use advisory_runtime::migrations;
use advisory_tests::Database;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

crate::guide::page!("migrations", 1);

mod with_steps {
    use super::MIGRATIONS;
    use advisory_runtime::migrations::{Error, Migrator, Report};
    use std::time::Duration;

    crate::guide::page!("migrations", 2);

    pub(super) async fn call(url: &str) -> Result<Report, Error> {
        migrate(url).await
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

    crate::guide::page!("migrations", 3);

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
        with_steps::call(url),
        with_steps::call(url)
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
