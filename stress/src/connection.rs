//! Connections of the controller, apart from the load's.

use crate::clock::pass;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long the server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// A row as text; NULL is empty.
pub(crate) type Row = Vec<String>;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Retries: the server may be starting, or have no room.
pub(crate) async fn connect(url: &str) -> Result<Client, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match timeout(PATIENCE, tokio_postgres::connect(url, NoTls)).await? {
            Ok((client, connection)) => {
                // The proxy's errors also reach the calls of its client.
                drop(tokio::spawn(async move { drop(connection.await) }));
                return Ok(client);
            }
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => pass(Duration::from_millis(20)).await,
        }
    }
}

pub(crate) async fn rows(client: &Client, sql: &str) -> Result<Vec<Row>, Failure> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let text = |index| row.get(index).unwrap_or_default().to_owned();
            Some((0..row.len()).map(text).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}
