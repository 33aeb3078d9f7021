//! Lists leases, and frees keys: `cargo advisory lease`.

use std::fmt::Write;
use std::time::{Duration, Instant};

use advisory_runtime::lease::{Error, Request, Row, Table};
use advisory_runtime::monitor::{self, Lease, LeaseSummary, Names};
use clap::{Args, Subcommand};
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use serde_json::json;

use crate::cli::{self, Answer, CODES, Confirmation, LEASE_TABLE};
use crate::columns::Columns;
use crate::database::{self, DatabaseUrl, Session, read_table, with_timeout};
use crate::failure::{Result, bail};
use crate::json::{VERSION, pretty};
use crate::locks::{DONE, OVERDUE, lease_cells, lease_json, lease_label, unknown_renewals};
use crate::screen::{BOLD, KEY, PLAIN, note};
use crate::selection::NameSources;
use crate::text::{hex, one_line, shell_word};

const MOST: u32 = 1_000;
/// The number of bytes of a hash that are shown. Two keys of a table hardly ever share them.
const HASH: usize = 6;
/// The least number of digits by which a hash is looked up.
const SHORTEST_HASH: usize = 6;

const COLUMNS: Columns<8> = Columns {
    heads: "KEY | LEASE | HOLDER | STATE | TOKEN | AGE | RENEWED | EXPIRES IN",
    styles: [BOLD, KEY, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, BOLD],
    narrowest: 8,
};

/// Lists the leases of a database, and frees a key
///
/// Shows the leases that are held and the keys that are done. Frees a key if its holder is dead, if
/// a leader has to go, or if work has to run again.
///
/// The time of the last renewal follows from the ttl, which is in the lock sites of `--artifact` or
/// `--inventory`.
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    database_url: DatabaseUrl,
    #[arg(long, value_name = "TABLE", global = true, help = LEASE_TABLE)]
    lease_table: Option<String>,
    #[command(flatten)]
    names: NameSources,
}

#[derive(Subcommand)]
enum Action {
    /// Lists the leases that are held and the keys that are done, soonest to expire first
    List(List),
    /// Frees a key whose holder is dead, or whose work has to run again
    Release(Target),
    /// Ends the term of a leader, so that another is elected
    Resign(Target),
}

// The options of the list, and the table.
#[derive(Args)]
struct List {
    /// Only those with this text in their name, pattern or holder
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    #[command(flatten)]
    answer: Answer,
}

// The key to free.
#[derive(Args)]
#[command(
    after_help = "Shows the lease and what happens to it, and asks for confirmation.\n\nThe holder loses the lease: its fenced writes and its next renewal \
                  are refused, which drops its body. Its unfenced work can go on until then. Waits for a transaction that has \
                  fenced a write, at most five seconds."
)]
struct Target {
    /// The key as rendered, such as `webhook:42`, or the start of its hash as `list` shows it
    #[arg(allow_hyphen_values = true)]
    key: String,
    #[command(flatten)]
    confirmation: Confirmation,
}

impl Arguments {
    /// Returns `false` if nothing was freed.
    pub(crate) fn run(&self) -> Result<bool> {
        let names = &self.names.names()?;
        let table = &cli::lease_table(self.lease_table.as_ref())?;
        let address = self.database_url.find()?;
        database::with(&address, async |session: &mut Session| {
            let mut leases = Leases {
                session,
                table,
                names,
            };
            match &self.action {
                Action::List(list) => leases.list(list).await,
                Action::Release(target) => leases.free_key(target, false).await,
                Action::Resign(target) => leases.free_key(target, true).await,
            }
        })
    }
}

/// The leases of a table.
struct Leases<'a> {
    session: &'a mut Session,
    table: &'a Table,
    names: &'a Names,
}

fn text(summary: &LeaseSummary, table: &Table, width: Option<usize>) -> String {
    let rows: Vec<[String; 8]> = summary.leases.iter().map(row).collect();
    let mut text = COLUMNS.draw(&rows, width);
    if !rows.is_empty() {
        text.push('\n');
    }
    let held: u64 = summary.counts.iter().map(|count| count.held).sum();
    let done: u64 = summary.counts.iter().map(|count| count.done).sum();
    let is_overdue = |lease: &&Lease| lease_cells(lease)[2] == OVERDUE;
    if let Some(overdue) = summary.leases.iter().find(is_overdue) {
        let key = match &overdue.row.key {
            Some(text) => shell_word(&one_line(text)),
            None => hash(overdue),
        };
        let _ = writeln!(
            text,
            "{OVERDUE}: not renewed in time, so the holder is dead, stopped, or cannot reach the server. To free the key:\n    \
             {KEY}cargo advisory lease release {key}{KEY:#}\n"
        );
    }
    let table = one_line(&table.name());
    let _ = writeln!(text, "{held} held, {done} {DONE} in `{table}`");
    for why in unknown_renewals(&summary.leases) {
        let _ = writeln!(text, "{why}");
    }
    let shown = rows.len() as u64;
    if held + done > shown {
        let _ = writeln!(text, "the first {shown} are shown: `--filter` narrows them");
    }
    text
}

fn hash(lease: &Lease) -> String {
    hex(&lease.row.key_hash[..HASH])
}

fn row(lease: &Lease) -> [String; 8] {
    let (hash, [mut label, holder, state, token, age, renewed, left]) =
        (hash(lease), lease_cells(lease));
    // Without a pattern the label is the hash itself.
    if lease.row.key.is_none() && label.starts_with(&hash) {
        label.clear();
    }
    [hash, label, holder, state, token, age, renewed, left]
}

impl Leases<'_> {
    async fn list(&mut self, list: &List) -> Result<bool> {
        let (table, names, filter) = (self.table, self.names, list.filter.as_deref());
        let read = async |session: &mut Session| {
            monitor::lease_summary(session, table, names, filter, MOST).await
        };
        let summary = read_table(self.session, &table.name(), read).await??;
        let json = || {
            let leases: Vec<_> = summary.leases.iter().map(lease_json).collect();
            pretty(&json!({ "version": VERSION, "leases": leases }))
        };
        let text = |width| text(&summary, self.table, width);
        list.answer.write(text, json)?;
        Ok(true)
    }

    /// Finds the lease of a key by its text or by the start of its hash.
    async fn find(&mut self, key: &str) -> Result<Option<Lease>> {
        let (table, names) = (self.table, self.names);
        let of_text = async |session: &mut Session| {
            monitor::lease(session, table, names, Request::text(key)).await
        };
        if let Some(lease) = read_table(self.session, &table.name(), of_text).await?? {
            return Ok(Some(lease));
        }
        let digits = key.trim_end_matches('…');
        let is_hash = digits.chars().all(|digit| digit.is_ascii_hexdigit());
        if !is_hash || digits.len() < SHORTEST_HASH {
            return Ok(None);
        }
        let of_hash = async |session: &mut Session| {
            monitor::leases_by_hash(session, table, names, digits).await
        };
        let mut leases = read_table(self.session, &table.name(), of_hash).await??;
        if leases.len() > 1 {
            bail!("`{digits}` is the start of several hashes: write more of it");
        }
        Ok(leases.pop())
    }

    async fn free_key(&mut self, target: &Target, is_term: bool) -> Result<bool> {
        let key = &target.key;
        let Some(lease) = self.find(key).await? else {
            note(&format!(
                "nobody holds a lease on `{}`, and it is not done: the key is free, or it is another text. `cargo advisory lease list` shows \
                 what is held. Nothing was done.\n",
                one_line(key)
            ));
            return Ok(false);
        };
        note(&description(&lease));
        if is_term && lease.row.is_done {
            note(
                "Nobody holds it: the work is completed. `lease release` makes it run again. Nothing was done.\n",
            );
            return Ok(false);
        }
        note(if is_term {
            "The leader loses its term: its fenced writes and its next renewal are refused, and another is elected, which can be it again.\n"
        } else if lease.row.is_done {
            "The key is free at once, so the next call runs the work again.\n"
        } else {
            "Its holder loses the lease, and the key is free at once. If the holder is alive, its fenced writes and its next renewal are \
             refused. Until then its unfenced work goes on, at the same time as that of the next holder.\n"
        });
        let (question, done) = if is_term {
            ("End the term", "The term has ended.\n")
        } else {
            ("Free the key", "The key is free.\n")
        };
        if !target.confirmation.is_given(question)? {
            note("Nothing was done.\n");
            return Ok(false);
        }
        let is_free = self.free(&lease.row).await?;
        note(if is_free {
            done
        } else {
            "The lease has changed meanwhile: it was released, taken over or completed. Nothing was done.\n"
        });
        Ok(is_free)
    }

    /// Waits at most five seconds for a transaction that has fenced a write. The time limit ends
    /// with this transaction, even if a pooler keeps the session.
    async fn free(&mut self, row: &Row) -> Result<bool> {
        let (began, table) = (Instant::now(), self.table);
        let free = async |session: &mut Session| {
            let bounded = session.batch_execute("SET LOCAL lock_timeout = '5s'").await;
            bounded.map_err(Error::Database)?;
            table.free(session, row).await
        };
        match with_timeout(self.session.transaction(free)).await? {
            Err(Error::Database(_)) if began.elapsed() >= Duration::from_secs(5) => bail!(
                "the holder writes under the lease's fence, and its transaction did not end within five seconds. Nothing was done: \
                 repeat this, or end its session"
            ),
            done => Ok(done?),
        }
    }
}

fn description(lease: &Lease) -> String {
    let row = &lease.row;
    let [_, holder, state, token, age, renewed, left] = lease_cells(lease);
    let label = one_line(&lease_label(lease));
    let mut text = format!("{BOLD}{label}{BOLD:#}  {}\n", hash(lease));
    let _ = if row.is_done {
        writeln!(text, "  {state} by {holder}, with token {token}")
    } else {
        writeln!(text, "  held by {holder} for {age}, with token {token}")
    };
    if !renewed.is_empty() {
        let overdue = match &*state {
            OVERDUE => ", and the next renewal is overdue",
            _ => ": its holder is alive",
        };
        let _ = writeln!(text, "  renewed {renewed}{overdue}");
    }
    let _ = if row.never_expires() {
        writeln!(text, "  never expires")
    } else {
        writeln!(text, "  free by itself in {left}")
    };
    text
}
