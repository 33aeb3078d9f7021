//! Connections to a pooler.

use advisory_runtime::cancel::told_process_id;
use diesel_async::{AsyncConnection, AsyncPgConnection};

/// Repeated: diesel-async sets a connection up with prepared statements, which can reach another
/// backend than the later query. And of a thousand process ids that pgbouncer makes up one could be
/// a process's, by which no pooler is recognized.
pub async fn connect(url: &str, count: usize) -> Vec<AsyncPgConnection> {
    let mut conns = Vec::new();
    for _ in 0..100 * count {
        let conn = AsyncPgConnection::establish(url).await.ok();
        let is_recognized = |conn: &AsyncPgConnection| {
            told_process_id(&conn.cancel_token()).is_none_or(|told| told > 1 << 22)
        };
        conns.extend(conn.filter(is_recognized));
        if conns.len() == count {
            return conns;
        }
    }
    panic!("no {count} connections to {url}")
}
