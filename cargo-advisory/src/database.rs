//! Connects the command to a database: `address` finds it and takes out the `options` that
//! tokio-postgres does not know, `session` connects to it, over `tls`.

mod address;
mod options;
mod session;
mod tls;

pub(crate) use address::{DatabaseUrl, find};
pub(crate) use session::{
    BEGIN_READING, Connection, Queries, Session, read_bounded, read_table, with_timeout,
};

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use advisory_runtime::__private::qualify;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, SimpleQueryMessage, SimpleQueryRow};

use crate::failure::{Failure, Result};
use crate::screen::{self, ERROR};
use crate::text::controls_terminal;

/// Connects, runs `work`, and disconnects.
pub(crate) fn with<C: Connection, T>(
    address: &str,
    work: impl AsyncFnOnce(&mut C) -> Result<T>,
) -> Result<T> {
    block_on(async {
        let mut connection = C::open(address).await?;
        let done = work(&mut connection).await;
        connection.close().await;
        done
    })
}

/// Prints the result of `read` at each interval, until Ctrl-C, or until the output is closed. Once
/// it has connected, it reports a failure and tries again, because a server can fail over.
pub(crate) fn watch<C: Connection>(
    address: &str,
    every: Duration,
    read: &impl AsyncFn(&mut C) -> Result<String>,
) -> Result<bool> {
    block_on(async {
        let mut connection = Some(C::open(address).await?);
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended = pin!(ended());
        let shown = loop {
            let refreshed = async {
                ticks.tick().await;
                let open = match &mut connection {
                    Some(open) => open,
                    lost => lost.insert(C::open(address).await?),
                };
                read(open).await
            };
            match unless(ended.as_mut(), refreshed).await {
                None => break Ok(true),
                Some(Ok(text)) => match screen::print(&text) {
                    Ok(true) => {}
                    Ok(false) => break Ok(true),
                    failed => break failed,
                },
                Some(Err(failure)) => {
                    connection = None;
                    screen::note(&format!("{ERROR}error{ERROR:#}: {failure}\n"));
                }
            }
        };
        if let Some(connection) = connection {
            connection.close().await;
        }
        shown
    })
}

/// Runs a future that uses a database on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Input(format!("cannot start: {error}")))?
        .block_on(work)
}

/// Waits for Ctrl-C, or until nobody reads the standard output.
pub(crate) async fn ended() {
    let closed = async {
        let mut ticks = interval(CHECK_OUTPUT);
        while !screen::is_closed() {
            ticks.tick().await;
        }
    };
    drop(unless(pin!(closed), tokio::signal::ctrl_c()).await);
}

/// The interval at which the output is checked, because a view that nobody sees must not load the
/// server.
const CHECK_OUTPUT: Duration = Duration::from_millis(250);

/// Runs `work`; `None` if `end` completes first.
pub(crate) async fn unless<T>(
    mut end: Pin<&mut impl Future<Output = ()>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match end.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}

/// A name as an SQL identifier, in quotes if necessary, and without characters that control a
/// terminal.
pub(crate) fn identifier(name: &str) -> String {
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_plain = name.starts_with(is_letter)
        && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
        && !RESERVED.split(' ').any(|word| word == name);
    if is_plain {
        return name.to_owned();
    }
    let name = name.replace(controls_terminal, " ");
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as an SQL literal that is valid with both values of `standard_conforming_strings`.
pub(crate) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        return format!("E'{}'", quoted.replace('\\', "\\\\"));
    }
    format!("'{quoted}'")
}

/// The keywords that PostgreSQL up to version 18 reserves, or accepts only as the name of a
/// function or a type.
const RESERVED: &str = "\
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation column \
    concurrently constraint create cross current_catalog current_date current_role current_schema current_time \
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from \
    full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime \
    localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references returning \
    right select session_user similar some symmetric system_user table tablesample then to trailing true union unique user \
    using variadic verbose when where window with";

/// Connects, runs a query that has nothing to bind, and disconnects.
pub(crate) fn query(address: &str, query: &str) -> Result<Vec<SimpleQueryRow>> {
    with(address, async |queries: &mut Queries| {
        let answer = with_timeout(queries.client.simple_query(query)).await??;
        Ok(only_rows(answer))
    })
}

/// The rows of a query in plain SQL that has nothing to bind.
pub(crate) async fn rows(client: &Client, query: &str) -> Result<Vec<SimpleQueryRow>> {
    let answer = with_timeout(client.simple_query(&qualify(query))).await??;
    Ok(only_rows(answer))
}

pub(crate) fn only_rows(answer: Vec<SimpleQueryMessage>) -> Vec<SimpleQueryRow> {
    let rows = answer.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.collect()
}

pub(crate) fn cell(rows: &[SimpleQueryRow], at: usize) -> Option<&str> {
    rows.first()?.get(at)
}

/// The rows of a query in plain SQL, each as a value.
pub(crate) async fn query_as<T>(
    client: &Client,
    query: &str,
    binds: &[&(dyn ToSql + Sync)],
    of: impl FnMut(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>> {
    let rows = with_timeout(client.query(&qualify(query), binds)).await??;
    Ok(rows.iter().map(of).collect::<Result<_, _>>()?)
}
