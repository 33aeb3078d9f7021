//! No pattern and no key can end the comment that shows it, or add a statement to the message.

use crate::blocking;
use advisory_runtime::{
    Error, Isolation, Key, LockKey, Request, Wait, advisory_lock, session, xact,
};
use advisory_tests::Database;
use diesel::{Connection as _, PgConnection, QueryResult};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use tokio::task::spawn_blocking;

/// Texts of everything that could end a comment or begin a statement; the same in each run.
struct Texts(u64);

const PIECES: [&str; 30] = [
    "*/",
    "/*",
    "*",
    "/",
    "**",
    "//",
    "--",
    "\0",
    "'",
    "\"",
    "\\",
    ";",
    ":",
    "\n",
    "\r\n",
    "\t",
    "\u{7f}",
    "😀",
    "é",
    "ÿ",
    "€",
    "\u{2028}",
    "\u{202e}",
    "$$",
    "$1",
    "E'\\'",
    "room:<room>",
    " ",
    "*/;INSERT INTO booking VALUES (1, 'smuggled');/*",
    "*/COMMIT;DELETE FROM booking;--",
];

impl Texts {
    fn number(&mut self, below: usize) -> usize {
        // xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below).unwrap()).unwrap()
    }

    fn text(&mut self) -> String {
        // Some are longer than the part that is shown.
        let pieces = match self.number(20) {
            0 => 200,
            _ => self.number(9),
        };
        (0..pieces)
            .map(|_| PIECES[self.number(PIECES.len())])
            .collect()
    }
}

struct Odd(&'static str);

impl LockKey for Odd {
    fn key(&self) -> Key {
        Key::BigInt(7)
    }
    fn pattern(&self) -> &'static str {
        self.0
    }
}

/// No row was added, and the existing one is unchanged.
async fn assert_nothing_was_smuggled(conn: &mut AsyncPgConnection) {
    use diesel_async::RunQueryDsl;
    let rows =
        diesel::dsl::sql::<diesel::sql_types::Text>("SELECT string_agg(guest, ',') FROM booking");
    assert_eq!(rows.get_result::<String>(conn).await.unwrap(), "canary");
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
        let ended = tokio::spawn(async move { no_text_ends_the_comment(&url, 500).await }).await;
        db.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
        ended.unwrap();
    }
}

#[advisory_lock(key = "odd:<text>")]
async fn odd(conn: &mut AsyncPgConnection, text: &str) -> QueryResult<usize> {
    _ = conn;
    Ok(text.len())
}

/// For a process that shows rendered keys.
pub(crate) async fn no_key_ends_the_comment(db: &Database) {
    db.run("INSERT INTO booking VALUES (0, 'canary')").await;
    let mut conn = db.connect().await;
    let mut random = Texts(0x0DD5_EED5);
    for _ in 0..1_000 {
        let text = random.text();
        let end = odd(&mut conn, &text).await;
        end.unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
    }
    assert_nothing_was_smuggled(&mut conn).await;
}
