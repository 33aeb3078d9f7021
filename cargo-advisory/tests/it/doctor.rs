//! `doctor` reports what is true, and its statements fix it.

use crate::diagnosis::{doctor, findings, fix, found, job_program, level, message, problems};
use advisory_runtime::lease::Table;
use advisory_tests::leases::{FIRST, key, leases_at, once};
use advisory_tests::{Bouncer, Database, pid_of};

use crate::live_view::holder;
use crate::programs::{
    assert_has, assert_has_all, assert_lacks, assert_starts, pooler, run_at, url_as,
};

const PAGE: &str = include_str!("../../../advisory-runtime/docs/doctor.md");

/// A test's own role, and its address.
struct Role {
    name: String,
    url: String,
}

impl Role {
    async fn create(db: &Database, name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        db.run(&format!("CREATE ROLE \"{name}\" LOGIN")).await;
        let url = url_as(db, &name);
        Self { name, url }
    }

    async fn set(&self, db: &Database, settings: &[&str]) {
        for setting in settings {
            db.run(&format!("ALTER ROLE \"{}\" SET {setting}", self.name))
                .await;
        }
    }

    async fn drop(self, db: &Database) {
        db.run(&format!(
            "DROP OWNED BY \"{0}\"; DROP ROLE \"{0}\"",
            self.name
        ))
        .await;
    }
}

/// The settings of a server with its defaults, and how the advised statements change them.
#[tokio::test(flavor = "multi_thread")]
async fn the_statements_advised_for_a_role_fix_its_settings() {
    let db = Database::create().await;
    let role = Role::create(&db, "Doctor's advice").await;
    role.set(
        &db,
        &[
            "default_transaction_isolation = 'serializable'",
            "idle_session_timeout = '5min'",
            "statement_timeout = '10s'",
        ],
    )
    .await;
    let url = role.url.replace(' ', "%20").replace('\'', "%27");
    let advised = [
        "lock_timeout",
        "statement_timeout",
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        "default_transaction_isolation",
        "client_connection_check_interval",
        "live_view",
    ];
    let before = findings(&url, &[]).await;
    assert_eq!(problems(&before), [""; 0]);
    // All advice on a setting gives one value.
    let mut values: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    for statement in before
        .iter()
        .flat_map(|found| found["fix"].as_array().unwrap())
    {
        if let Some((setting, value)) = statement.as_str().unwrap().split_once(" = ") {
            let other = values.insert(setting.to_owned(), value.to_owned());
            assert!(
                other.is_none_or(|other| other == value),
                "{setting}: {before:#?}"
            );
        }
    }
    // For CI, advice is a failure. Without the flag it is not, which `findings` has checked.
    let said = doctor(&url, &["--strict"]).await.exits(1);
    // Two settings are corrected by one `lock_timeout`, and what is not fine has its page.
    let statement = "SET lock_timeout = '5s';";
    assert_eq!(said.out.matches(statement).count(), 2, "{}", said.out);
    assert_has(&said.out, &format!("{statement} (as above)\n"));
    assert_has(&said.out, "/guide/doctor/#statement_timeout\n");
    assert_lacks(&said.out, "/guide/doctor/#standby\n");
    let names = before.iter().filter(|found| found["level"] != "fine");
    let names: Vec<&str> = names.map(|found| found["name"].as_str().unwrap()).collect();
    let allowing = async |names: &[&str]| {
        let words = names.iter().flat_map(|name| ["--allow", name]);
        let words: Vec<&str> = ["--strict"].into_iter().chain(words).collect();
        doctor(&url, &words).await
    };
    assert_eq!(allowing(&names).await.code, Some(0), "{names:?}");
    assert_eq!(allowing(&names[1..]).await.code, Some(1), "{names:?}");
    let wrong = allowing(&["liveview"]).await.exits(2);
    assert_has(&wrong.err, "there is no finding of that name");
    for name in advised {
        assert_eq!(level(&before, name), "advice", "{name}");
        for statement in fix(&before, name) {
            db.run(&statement).await;
        }
    }
    let after = findings(&url, &[]).await;
    assert_eq!(problems(&after), [""; 0]);
    for name in advised {
        assert_eq!(level(&after, name), "fine", "{}", message(&after, name));
    }
    // Repeated: the advice on one setting must not undo the advice on another.
    assert_starts(&message(&after, "lock_timeout"), "5s: ");
    assert_eq!(level(&after, "keepalives"), "fine");
    db.run(&format!("REVOKE pg_monitor FROM \"{}\"", role.name))
        .await;
    role.drop(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_and_headings_of_the_guides_page_match() {
    let db = Database::create().await;
    let findings = findings(db.url(), &[]).await;
    let mut names: Vec<&str> = findings
        .iter()
        .map(|found| {
            let name = found["name"].as_str().unwrap();
            let page = found["page"].as_str().unwrap();
            assert!(page.ends_with(&format!("/guide/doctor/#{name}")), "{page}");
            name
        })
        .collect();
    let mut headings: Vec<&str> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .collect();
    names.sort_unstable();
    headings.sort_unstable();
    assert_eq!(names, headings);
    let said = doctor(db.url(), &[]).await;
    let count = |level| said.out.lines().filter(|it| it.starts_with(level)).count();
    let [fine, advice, unknown] = ["fine ", "advice ", "unknown "].map(count);
    let last = said.out.lines().last().unwrap();
    let counts = format!("{fine} fine, {advice} advice, {unknown} unknown, ");
    assert_starts(last, &counts);
    assert_has(last, " problem");
    assert_starts(&said.out, "PostgreSQL ");
}

/// In each mode, and without a pooler.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_and_its_mode_are_shown() {
    let db = Database::create().await;
    let direct = findings(db.url(), &[]).await;
    let said = message(&direct, "pooler");
    assert_starts(&said, "none: ");
    for (settings, level_of_it, text) in [
        ("pool_mode = session", "fine", "one in session mode"),
        (
            "pool_mode = transaction\ndefault_pool_size = 1",
            "problem",
            "one in transaction mode",
        ),
        (
            "pool_mode = transaction\ndefault_pool_size = 4",
            "problem",
            "one in transaction mode",
        ),
        ("pool_mode = statement", "problem", "one in statement mode"),
    ] {
        let bouncer = pooler!(&db, settings);
        let seen = findings(&bouncer.url(&db), &[]).await;
        let said = message(&seen, "pooler");
        assert_starts(&said, text);
        assert_eq!(level(&seen, "pooler"), level_of_it, "{settings}");
        assert_eq!(problems(&seen).len(), usize::from(level_of_it == "problem"));
        db.until_no_locks().await;
    }
}

/// The setting that the finding names resolves it, and session-level locks are refused from then
/// on.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_is_named_is_fine() {
    let db = Database::create().await;
    let bouncer = pooler!(&db, "pool_mode = transaction");
    let before = findings(&bouncer.url(&db), &[]).await;
    let statement = fix(&before, "pooler").remove(0);
    // For this database only, because other tests use this role.
    let (_, name) = db.url().rsplit_once('/').unwrap();
    let name = name.split('?').next().unwrap();
    let of_database = statement.replace(" SET ", &format!(" IN DATABASE {name} SET "));
    db.run(&of_database).await;
    let named = Bouncer::start(&db, "pool_mode = transaction")
        .await
        .unwrap();
    let after = findings(&named.url(&db), &[]).await;
    let said = message(&after, "pooler");
    assert_eq!(problems(&after), [""; 0], "{said}");
    assert_eq!(level(&after, "pooler"), "fine");
    assert_has(&said, "`advisory.pooler` says so");
    let reset = of_database.replace(" SET ", " RESET ");
    db.run(reset.split(" = ").next().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_table_is_looked_at_with_the_rights_of_the_role() {
    let db = Database::create().await;
    let role = Role::create(&db, "lessee").await;
    let none = findings(&role.url, &[]).await;
    assert_eq!(level(&none, "lease_table"), "fine");
    let named = findings(&role.url, &["--lease-table", "public.app_lease"]).await;
    assert_eq!(problems(&named), ["lease_table"]);

    let mut conn = db.connect().await;
    Table::new().set_up(&mut conn).await.unwrap();
    let strange = findings(&role.url, &[]).await;
    assert_eq!(problems(&strange), [""; 0]);
    assert_eq!(level(&strange, "lease_table"), "advice");
    let grants = fix(&strange, "lease_table");
    db.run(&grants[0]).await;
    let half = findings(&role.url, &[]).await;
    assert_eq!(problems(&half), ["lease_table"]);
    db.run(&fix(&half, "lease_table")[1]).await;
    let whole = findings(&role.url, &[]).await;
    assert_eq!(level(&whole, "lease_table"), "fine", "{whole:#?}");

    for change in [
        "ALTER SEQUENCE advisory_lease_token CACHE 10",
        "ALTER SEQUENCE advisory_lease_token CACHE 1; ALTER TABLE advisory_lease RENAME grant_id TO g",
    ] {
        db.run(change).await;
        let changed = findings(&role.url, &[]).await;
        let said = message(&changed, "lease_table");
        assert_eq!(problems(&changed), ["lease_table"]);
        assert_has(&said, "differs from what the migration creates");
    }
    role.drop(&db).await;
}

/// Its statements fix the sequence, the next grant's token is larger, and nothing sets it back
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_below_the_tokens_is_a_problem_until_moved() {
    let db = Database::create().await;
    let name = "lease_sequence";
    assert_eq!(level(&findings(db.url(), &[]).await, name), "fine");
    let table = Table::new().named("locks.app_lease").unwrap();
    let mut conn = db.connect().await;
    db.run("CREATE SCHEMA locks").await;
    table.set_up(&mut conn).await.unwrap();
    let words = ["--lease-table", "locks.app_lease"];
    let seen = findings(db.url(), &words).await;
    assert_eq!(level(&seen, name), "fine", "{seen:#?}");
    let leases = leases_at(db.url(), 1).table(table);
    once(&leases, key("k")).await.unwrap();
    let sequence = "locks.app_lease_token";
    for (change, expected) in [
        ("UPDATE locks.app_lease SET token = token + 5000", "problem"),
        ("ALTER SEQUENCE locks.app_lease_token RESTART", "problem"),
        ("ALTER SEQUENCE locks.app_lease_token CYCLE", "problem"),
        (
            "ALTER SEQUENCE locks.app_lease_token OWNED BY locks.app_lease.token",
            "advice",
        ),
    ] {
        db.run(change).await;
        let before = findings(db.url(), &words).await;
        assert_eq!(level(&before, name), expected, "{change}: {before:#?}");
        for statement in fix(&before, name) {
            db.run(&statement).await;
        }
        let after = findings(db.url(), &words).await;
        assert_eq!(level(&after, name), "fine", "{change}: {after:#?}");
    }
    let token = once(&leases, key("k")).await.unwrap();
    assert_eq!(token.get(), FIRST + 5002);

    let role = Role::create(&db, "mover").await;
    assert_eq!(level(&findings(&role.url, &words).await, name), "unknown");
    db.run(&format!(
        "GRANT USAGE ON SCHEMA locks TO \"{0}\"; GRANT SELECT ON locks.app_lease TO \"{0}\"; \
         GRANT USAGE ON SEQUENCE {sequence} TO \"{0}\"",
        role.name
    ))
    .await;
    let seen = findings(&role.url, &words).await;
    assert_eq!(level(&seen, name), "advice", "{seen:#?}");
    for statement in fix(&seen, name) {
        db.run(&statement).await;
    }
    assert_eq!(level(&findings(&role.url, &words).await, name), "fine");
    db.run("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_walfile_name(pg_lsn) FROM PUBLIC")
        .await;
    let seen = findings(&role.url, &words).await;
    assert_eq!(level(&seen, name), "advice", "{seen:#?}");
    assert_has(&message(&seen, name), "timeline");
    for statement in fix(&seen, name) {
        db.run(&statement).await;
    }
    assert_eq!(level(&findings(&role.url, &words).await, name), "fine");
    role.drop(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_holder_is_a_problem_and_the_shown_command_ends_it() {
    let db = Database::create().await;
    let mut idle = holder(&db, "sleeper", "BEGIN; SELECT pg_advisory_xact_lock(5)").await;
    let pid = pid_of(&mut idle).await;
    let young = findings(db.url(), &["--older-than", "1h"]).await;
    assert_eq!(problems(&young), [""; 0]);
    assert_eq!(level(&young, "idle_sessions"), "fine");
    let now = ["--older-than", "0s"];
    let seen = findings(db.url(), &now).await;
    assert_eq!(problems(&seen), ["idle_sessions"]);
    let said = message(&seen, "idle_sessions");
    assert_starts(&said, &format!("{pid} (sleeper) has been idle"));
    let command = found(&seen, "idle_sessions")["fix"][0].as_str().unwrap();
    assert_eq!(command, format!("cargo advisory locks terminate {pid}"));
    let words = ["locks", "terminate", &pid.to_string(), "--yes"];
    run_at(db.url(), &words).await.exits(0);
    let prepare = "BEGIN; SELECT pg_advisory_xact_lock(6); PREPARE TRANSACTION E'it\\\\''s'";
    drop(holder(&db, "two-phase", prepare).await);
    let prepared = findings(db.url(), &now).await;
    assert_eq!(problems(&prepared), ["idle_sessions"]);
    for statement in fix(&prepared, "idle_sessions") {
        // Without the `E`, an old setting of the server would end the literal too early.
        assert_eq!(statement, "ROLLBACK PREPARED E'it\\\\''s';");
        db.run(&statement).await;
    }
    let after = findings(db.url(), &now).await;
    assert_eq!(problems(&after), [""; 0]);
    assert_eq!(level(&after, "idle_sessions"), "fine");
    let role = Role::create(&db, "blind").await;
    let blind = findings(&role.url, &now).await;
    assert_eq!(problems(&blind), [""; 0]);
    assert_eq!(level(&blind, "idle_sessions"), "unknown");
    role.drop(&db).await;
}

/// The advice of each finding makes it fine. A finding says what it has not looked at.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_table_is_looked_at_with_the_claims_of_the_program() {
    let db = Database::create().await;
    let names = ["job_tables", "time_zone", "row_security", "unlogged_tables"];
    let none = findings(db.url(), &[]).await;
    for name in names {
        assert_eq!(
            level(&none, name),
            "fine",
            "{name}: {}",
            message(&none, name)
        );
    }
    db.run(
        "CREATE UNLOGGED TABLE mail (id int8 PRIMARY KEY, run_at timestamp NOT NULL DEFAULT now(), attempts int4 NOT NULL DEFAULT 0, \
         locked_until timestamptz, locked_by varchar(30), completed_at timestamptz, failed_at timestamptz, error_message varchar(20), \
         \"Tenant\" char(9)); \
         CREATE INDEX mail_claim_0123abcd ON mail (run_at); \
         CREATE INDEX other ON mail (run_at, id) WHERE attempts > 0",
    )
    .await;
    let unseen = findings(db.url(), &[]).await;
    assert_eq!(level(&unseen, "job_tables"), "unknown");
    for name in names {
        let said = message(&unseen, name);
        assert_has(&said, "not looked at: `mail`, which may be job tables");
    }
    let role = Role::create(&db, "postman").await;
    role.set(&db, &["TimeZone = 'Asia/Kolkata'"]).await;
    db.run(&format!(
        "GRANT ALL ON mail TO \"{0}\"; ALTER TABLE mail ENABLE ROW LEVEL SECURITY",
        role.name
    ))
    .await;
    let program = job_program("mail", Some("Tenant"));
    let words = ["--artifact", &program];
    let before = findings(&role.url, &words).await;
    let mut expected = problems(&before);
    expected.sort_unstable();
    assert_eq!(
        expected,
        ["job_tables", "row_security", "time_zone", "unlogged_tables"]
    );
    let said = message(&before, "job_tables");
    assert_has_all(
        &said,
        &[
            "`locked_by` of `mail` is character varying(30), too short",
            "`error_message` of `mail` is character varying(20)",
            "`mail` has no index that its claims can use, for `(\"run_at\", \"id\") WHERE \"completed_at\" IS NULL AND \"failed_at\" IS NULL`",
            "`mail` has no index that its claims can use, for `(pg_catalog.hash_record_extended(ROW(\"Tenant\"),0), \"run_at\", \"id\") WHERE",
            "the index `mail_claim_0123abcd` of `mail` is that of another form",
        ],
    );
    for name in names {
        for statement in fix(&before, name) {
            db.run(&statement).await;
        }
    }
    let after = findings(&role.url, &words).await;
    for name in names {
        assert_eq!(
            level(&after, name),
            "fine",
            "{name}: {}",
            message(&after, name)
        );
    }
    assert_starts(&message(&after, "job_tables"), "`mail`: claims find");
    db.run("ALTER TABLE mail DROP COLUMN attempts").await;
    let lacks = findings(&role.url, &words).await;
    assert_has(
        &message(&lacks, "job_tables"),
        "lacks the column `attempts`",
    );
    db.run("DROP TABLE mail").await;
    let gone = findings(&role.url, &words).await;
    assert_starts(&message(&gone, "job_tables"), "there is no table `mail`");
    role.drop(&db).await;
}

/// Only a transaction of minutes counts, so the test looks at the age that is shown of a prepared
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_does_not_see_snapshots_learns_that() {
    let db = Database::create().await;
    let name = "oldest_snapshot";
    let seen = findings(db.url(), &[]).await;
    assert_eq!(level(&seen, name), "fine", "{seen:#?}");
    assert_has(&message(&seen, name), "were not looked at");
    let role = Role::create(&db, "shortsighted").await;
    let seen = findings(&role.url, &[]).await;
    assert_eq!(level(&seen, name), "unknown", "{seen:#?}");
    role.drop(&db).await;
}
