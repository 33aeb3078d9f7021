//! A log in another language than English is reported as such.

use advisory_tests::{OwnServer, left_out, owns_server};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};

use crate::live_view::does;
use crate::logging_server::log;
use crate::programs::{assert_has, assert_starts, file};

const SAYS: &str = "this log has messages in another language than English (`";

/// A wait that was given up, as servers log it in the languages of their distribution.
const LOGS: &str = "\
LOG:  Prozess 18366 wartet immer noch auf ExclusiveLock-Sperre auf Benutzersperre [16384,0,42,1] nach 100,184 ms
FEHLER:  storniere Anfrage wegen Zeitüberschreitung einer Sperre
ОШИБКА:  выполнение оператора отменено из-за тайм-аута блокировки
LOG:  プロセス18366はExclusiveLockをアドバイザリ・ロック[16384,0,42,1]で待機しています。100.138ミリ秒後
INSTRUCTION :  SELECT pg_advisory_lock(42)";

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_another_language_says_so() {
    let prefix = "2026-11-23 09:05:22.574 UTC [18366] ";
    for (at, line) in LOGS.lines().enumerate() {
        let name = format!("log-language-{at}.log");
        let path = file(&name, format!("{prefix}{line}\n"));
        for words in [&[path.as_str()][..], &[&path, "--format", "json"]] {
            let said = log(words).await.exits(2);
            assert_eq!(said.out, "");
            assert_starts(&said.err, &format!("error: {SAYS}"));
            assert_has(&said.err, "ALTER SYSTEM SET lc_messages = 'C'");
        }
    }
    // Messages in English are read. The first line says that there are others.
    let english = format!(
        "{prefix}LOG:  process 18366 acquired ExclusiveLock on advisory lock [5,0,42,1] after 1689.402 ms\n"
    );
    let both = format!("{english}{prefix}FEHLER:  storniere Anfrage\n");
    let said = log(&[&file("log-language-both.log", both)]).await.exits(0);
    assert_starts(&said.out, SAYS);
    assert_has(&said.out, "1 wait for 1 lock");
    // Nothing of this is another language.
    let statement = format!(
        "{prefix}LOG:  statement: SELECT ARRAY[5,0,42,1], 18366 -- NOTE:  x\n\tDETALLE:  x\nDETALLE:  x\n"
    );
    let said = log(&[&file("log-language-none.log", english + &statement)]).await;
    assert_starts(&said.out, "LOCK ");
}

/// A message in the three formats.
fn in_each_format(severity: &str, message: &str) -> [String; 3] {
    let time = "2026-11-23 09:05:22.574 UTC";
    [
        format!("{time} [18366] {severity}:  {message}\n"),
        format!(
            "{time},\"app\",\"shop\",18366,\"[local]\",6b.35,1,\"SELECT\",{time},4/15,0,{severity},00000,\"{message}\",,,,,,,,,\"web\"\n"
        ),
        format!(
            "{{\"timestamp\":\"{time}\",\"pid\":18366,\"error_severity\":\"{severity}\",\"message\":\"{message}\"}}\n"
        ),
    ]
}

/// `log_min_messages = debug1` adds a severity, not a language.
#[tokio::test(flavor = "multi_thread")]
async fn each_format_says_its_language() {
    for text in in_each_format("DEBUG", "forked new backend, pid=18366") {
        let said = log(&[&file("log-language-debug.log", text)]).await.fine();
        let nothing = "no waits for advisory locks in 1 message";
        assert_starts(&said.out, nothing);
    }
    for text in in_each_format("FEHLER", "storniere Anfrage") {
        let said = log(&[&file("log-language-of.log", text)]).await.exits(2);
        assert_eq!(said.out, "");
        let says = format!("error: {SAYS}FEHLER`");
        assert_starts(&said.err, &says);
    }
}

/// A server that speaks German, if it is installed with its translations.
#[tokio::test(flavor = "multi_thread")]
async fn a_german_servers_log_says_so() {
    if !owns_server() {
        return left_out("a server in German", "the server is somebody's own");
    }
    let server = OwnServer::start_under("env LANGUAGE=de").await.unwrap();
    let mut admin = AsyncPgConnection::establish(server.url()).await.unwrap();
    let is_set = admin
        .batch_execute("SET lc_messages = 'C.utf8'")
        .await
        .is_ok();
    does(&mut admin, "SELECT pg_advisory_lock(42)").await;
    let mut web = AsyncPgConnection::establish(server.url()).await.unwrap();
    if is_set {
        does(&mut web, "SET lc_messages = 'C.utf8'").await;
    }
    let wait = "SET lock_timeout = '300ms'; SELECT pg_advisory_lock(42)";
    web.batch_execute(wait).await.unwrap_err();
    let text = server.log();
    if !text.contains("FEHLER:  ") {
        return left_out("a server in German", "it has no translations");
    }
    let said = log(&[&file("log-language-german.log", text)]).await;
    assert!(
        said.err.contains(SAYS) || said.out.starts_with(SAYS),
        "{said:?}"
    );
}

/// Two databases without `%d` in the prefix: the server knows their names.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_has_its_name_instead_of_its_number() {
    let db = advisory_tests::Database::create().await;
    let number = db
        .count("SELECT oid::int8 FROM pg_database WHERE datname = current_database()")
        .await;
    let line = |database: i64| {
        format!(
            "2026-11-22 07:06:19.711 UTC [3] LOG:  process 3 acquired ExclusiveLock on advisory lock [{database},0,42,1] after 1689.402 ms\n"
        )
    };
    let path = file("log-database.log", line(number) + &line(7));
    let bare = log(&[&path]).await;
    assert_has(&bare.out, &format!("42 in database {number} "));
    let (_, name) = db.url().rsplit_once('/').unwrap();
    let name = name.split('?').next().unwrap();
    let named = log(&[&path, "--database-url", db.url()]).await.exits(0);
    assert_has(&named.out, &format!("42 in {name} "));
    assert_has(&named.out, "42 in database 7 ");
}
