//! A session without Diesel.

use crate::Database;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

/// A session without Diesel, so that SQLSTATEs are visible.
pub struct Session {
    client: Client,
    connection: JoinHandle<Result<(), Error>>,
}

impl Session {
    /// Connects to the database.
    pub async fn open(db: &Database) -> Self {
        let (client, connection) = tokio_postgres::connect(db.url(), NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        Self { client, connection }
    }

    /// Sends one message of several statements: the first column of every row, `NULL` for none.
    pub async fn send(&self, message: &str) -> Result<Vec<String>, Error> {
        let answers = self.client.simple_query(message).await?;
        let rows = answers.iter().filter_map(|answer| match answer {
            SimpleQueryMessage::Row(row) if row.is_empty() => None,
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The rows of a message that succeeds.
    pub async fn run(&self, message: &str) -> Vec<String> {
        let answer = self.send(message).await;
        answer.unwrap_or_else(|error| panic!("{message}: {error:?}"))
    }

    /// The SQLSTATE of a message that is refused.
    pub async fn refused(&self, message: &str) -> String {
        let error = match self.send(message).await {
            Err(error) => error,
            Ok(rows) => panic!("{message} was not refused: {rows:?}"),
        };
        code(&error)
    }

    /// The SQLSTATE by which the server has ended the session.
    pub async fn ended(&mut self) -> String {
        let connection = &mut self.connection;
        match connection.await.unwrap() {
            Err(error) => code(&error),
            Ok(()) => "the session goes on".to_owned(),
        }
    }

    /// Returns whether the session is outside a transaction: there, each message has its own.
    pub async fn is_idle(&self) -> bool {
        self.run("SELECT now() = statement_timestamp()").await == ["t"]
    }
}

/// So many sessions on a fresh database.
pub async fn sessions<const COUNT: usize>() -> (Database, [Session; COUNT]) {
    let db = Database::create().await;
    let mut sessions = Vec::new();
    for _ in 0..COUNT {
        sessions.push(Session::open(&db).await);
    }
    (db, sessions.try_into().ok().unwrap())
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The SQLSTATE of an error.
pub fn code(error: &Error) -> String {
    let code = error.code().map(|code| code.code().to_owned());
    code.unwrap_or_else(|| format!("no SQLSTATE: {error:?}"))
}
