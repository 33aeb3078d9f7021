//! No pattern and no key can end the comment that shows it, or add a statement to the message.

use advisory_runtime::{Error, Isolation, Key, LockKey, Request, Wait, session, xact};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::odd_texts::{Texts, assert_nothing_was_smuggled};
use advisory_tests::{Database, blocking};
use diesel::{Connection as _, PgConnection};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};

struct Odd(&'static str);

impl LockKey for Odd {
    fn key(&self) -> Key {
        Key::BigInt(7)
    }
    fn pattern(&self) -> &'static str {
        self.0
    }
}

/// A text that ended the comment would be a syntax error, or run the rest as SQL.
async fn no_text_ends_the_comment(url: &str, texts: usize) {
    let mut conn = AsyncPgConnection::establish(url).await.unwrap();
    let create = "CREATE TABLE IF NOT EXISTS booking (room int8 NOT NULL, guest text NOT NULL);\
                  INSERT INTO booking VALUES (0, 'canary')";
    conn.batch_execute(create).await.unwrap();
    let blocking_url = url.to_owned();
    let mut blocking = spawn_blocking(move || PgConnection::establish(&blocking_url).unwrap())
        .await
        .unwrap();
    let mut random = Texts(0x0DD5_EED5);
    for number in 0..texts {
        let pattern: &'static str = random.text().leak();
        let request = Request::new(Odd(pattern));
        let tried = request.clone().wait(Wait::Never);
        let end = match number % 7 {
            0 => begin(&mut conn, request).await,
            1 => begin(&mut conn, tried).await,
            2 => begin(&mut conn, request.isolation(Isolation::Serializable)).await,
            3 => acquire(&mut conn, request).await,
            4 => acquire(&mut conn, tried).await,
            5 => {
                let nested = conn.transaction(async |conn| begin(conn, request).await);
                nested.await
            }
            _ => {
                let held = advisory_runtime::blocking::xact::begin(&mut blocking, request);
                held.map(blocking::finish)
            }
        };
        end.unwrap_or_else(|error| panic!("{pattern:?}: {error:?}"));
        if number % 100 == 99 {
            assert_nothing_was_smuggled(&mut conn).await;
        }
    }
    assert_nothing_was_smuggled(&mut conn).await;
}

async fn begin(conn: &mut AsyncPgConnection, request: Request) -> Result<(), Error> {
    let held = xact::begin(conn, request).await?;
    held.finish(Ok(())).await
}

async fn acquire(conn: &mut AsyncPgConnection, request: Request) -> Result<(), Error> {
    let held = session::acquire(conn, request).await?;
    held.finish(Ok(())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pattern_ends_the_comment_or_smuggles_a_statement() {
    let db = Database::create().await;
    no_text_ends_the_comment(db.url(), 2_000).await;
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let mut conn = db.connect().await;
        let name = format!("advisory_{}_{encoding}", std::process::id()).to_lowercase();
        db.run(&format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
        ))
        .await;
        let own: String = {
            use diesel_async::RunQueryDsl;
            let own =
                diesel::dsl::sql::<diesel::sql_types::Text>("SELECT current_database()::text");
            own.get_result(&mut conn).await.unwrap()
        };
        let url = db.url().replace(&own, &name);
        let ended = spawn(async move { no_text_ends_the_comment(&url, 500).await }).await;
        db.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
        ended.unwrap();
    }
}
