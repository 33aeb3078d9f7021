//! The database that the command looks at, and what it sees there with which role.

use std::process::Command;

use advisory_tests::Database;

use crate::live_view::{holder, locks_at};
use crate::programs::{assert_has, assert_lacks, cases, url_as};

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_pg_monitor_learns_what_is_hidden() {
    let db = Database::create().await;
    // A name that SQL accepts only in quotes.
    let name = format!("night-watch-{}", std::process::id());
    let role = format!("\"{name}\"");
    db.run(&format!("CREATE ROLE {role} LOGIN")).await;
    let take = "/*advisory:nightly:<day>*/;SELECT pg_catalog.pg_advisory_lock(5)";
    let held = holder(&db, "job", take).await;
    let url = url_as(&db, &name);
    let said = locks_at(&url, &[]).await.exits(0);
    assert_has(&said.out, "job (");
    assert_has(&said.out, "hidden");
    let note = format!("nor the lock names in their queries: GRANT pg_monitor TO {role}\n");
    assert_has(&said.out, &note);
    assert_lacks(&said.out, "nightly");
    db.run(&format!("GRANT pg_monitor TO {role}")).await;
    let said = locks_at(&url, &[]).await;
    assert_has(&said.out, "nightly:<day> (5)");
    assert_lacks(&said.out, "GRANT");
    drop(held);
    db.run(&format!("REVOKE pg_monitor FROM {role}; DROP ROLE {role}"))
        .await;
}

/// The sources of the address: the flag, the environment, a `.env`, in this order.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_found_as_diesels_command_finds_it() {
    let db = Database::create().await;
    let folder = crate::programs::scratch("dotenv");
    let below = format!("{folder}/src");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(
        format!("{folder}/.env"),
        format!("OTHER=1\nDATABASE_URL={}\n", db.url()),
    )
    .unwrap();
    let command = |variables: &[(&str, &str)], words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
            .arg("locks")
            .args(words)
            .current_dir(&below)
            .env_remove("DATABASE_URL")
            .env_remove("CARGO_TERM_COLOR")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), err)
    };
    let wrong = "postgres://me:secret@127.0.0.1:1/none?connect_timeout=1";
    let named = ["--database-url", db.url()];
    let cases = [
        command(&[], &[]),
        command(&[("DATABASE_URL", wrong)], &named),
        command(&[("DATABASE_URL", wrong)], &[]),
    ];
    assert_eq!(cases[0], (Some(0), String::new()));
    assert_eq!(cases[1], (Some(0), String::new()));
    // An empty variable counts as unset.
    let empty = command(&[("DATABASE_URL", "")], &["--database-url", " "]);
    assert_eq!(empty, (Some(0), String::new()));
    let (code, err) = &cases[2];
    assert_eq!(*code, Some(2));
    assert_has(&err, "cannot connect to");
    assert_lacks(&err, "secret");

    std::fs::write(format!("{folder}/.env"), "PASSWORD='secret\n").unwrap();
    let (code, err) = command(&[], &[]);
    assert_eq!(code, Some(2));
    assert_has(&err, "`.env`");
    assert_lacks(&err, "secret");
    std::fs::write(format!("{folder}/.env"), "").unwrap();
    let (code, err) = command(&[], &[]);
    assert_eq!(code, Some(2));
    assert_has(&err, "--database-url");
    for nowhere in ["postgres:///shop", "dbname=shop"] {
        let (code, err) = command(&[("DATABASE_URL", nowhere)], &[]);
        assert_eq!(code, Some(2));
        assert_has(&err, "host=/var/run/postgresql");
    }
}

/// The URL of a program, with what its pool and its libraries read from it.
#[tokio::test(flavor = "multi_thread")]
async fn the_url_of_a_program_is_accepted_or_refused_by_the_name_of_its_option() {
    let db = Database::create().await;
    let sign = if db.url().contains('?') { '&' } else { '?' };
    let with = |options: &str| format!("{}{sign}{options}", db.url());
    let url = with(
        "pgbouncer=true&connection_limit=1&pool_timeout=10&pool_max_conns=10&statement-cache-capacity=0&prepareThreshold=0&\
         gssencmode=disable&client_encoding=UTF8&sslsni=1&replication=false&sslnegotiation=postgres&schema=public&lock_timeout=7s&\
         target_session_attrs=primary&keepalives_count=3",
    );
    let said = crate::diagnosis::doctor(&url, &[]).await;
    assert_eq!(said.err, "");
    assert_has(&said.out, "7s: a wait ends");
    db.run("CREATE SCHEMA shop; CREATE TABLE shop.jobs (id int PRIMARY KEY, locked_until timestamptz, locked_by text)")
        .await;
    for path in [
        "schema=shop",
        "currentSchema=shop&target_session_attrs=any",
        "search_path=a,%20shop",
    ] {
        let url = with(&format!("options=-c%20lock_timeout%3D7s&{path}"));
        locks_at(&url, &["--claims", "jobs"]).await.fine();
        let said = crate::diagnosis::doctor(&url, &[]).await;
        assert_has(&said.out, "7s: a wait ends");
    }
    let table = "\
service=shop | `service` in the database URL is not supported: no such file is read
passfile=/x | `passfile` in the database URL is not supported: no such file is read: set `PGPASSWORD`
sslmode=prefer&target_session_attrs=prefer-standby | write `standby` or `any`
target_session_attrs=standby | is not read only
gssencmode=require | write `sslmode=require`
sslcert=me.pem | name a role with a password
ssl=true | `sslmode=verify-full`
ssl_min_protocol_version=TLSv1.3 | TLS 1.2 and 1.3
keepalives_count=x | write a number
replication=database | a session that runs queries
require_auth=scram-sha-256 | `channel_binding=require`
sslcrl=revoked.pem | revoked certificates are not known
secretword=x | unknown option";
    for [options, write] in cases(table) {
        let said = locks_at(&with(options), &[]).await.exits(2);
        assert_eq!(said.out, "");
        assert_has(&said.err, write);
        assert_lacks(&said.err, "secretword");
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    }
    // The first of two hosts does not answer.
    let config: tokio_postgres::Config = db.url().parse().unwrap();
    let host = match &config.get_hosts()[0] {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        tokio_postgres::config::Host::Unix(folder) => folder.display().to_string(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let mut two = format!("host=127.0.0.1,{host} port=1,{port}");
    for (name, value) in [("user", config.get_user()), ("dbname", config.get_dbname())] {
        if let Some(value) = value {
            two = format!("{two} {name}={value}");
        }
    }
    if let Some(password) = config.get_password() {
        two = format!("{two} password='{}'", String::from_utf8_lossy(password));
    }
    locks_at(&two, &[]).await.fine();
}
