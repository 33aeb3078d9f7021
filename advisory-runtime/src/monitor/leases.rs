//! Leases that are held, and keys that are done.

use super::names::{Name, Names};
use crate::Connection;
use crate::lease::{Error, Request, Row, Table};

/// A lease that is held, or a key that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The row, with the holder, the pattern, the token and the expiry.
    pub row: Row,
    /// Its names, one for each lock of the inventory that it can be.
    pub names: Vec<Name>,
}

/// A summary of the leases of a table; see [`lease_summary`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseSummary {
    /// Some of them, soonest to expire first.
    pub leases: Vec<Lease>,
    /// Their numbers by pattern, the most frequent first.
    pub counts: Vec<LeaseCount>,
}

/// The numbers of leases of one pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCount {
    /// The pattern; `None` for keys without one, all together.
    pub pattern: Option<String>,
    /// Leases that are held.
    pub held: u64,
    /// Keys that are done.
    pub done: u64,
}

/// Lists every lease of a table that is held and every key that is done, soonest to expire first,
/// by [`Table::list`], with its errors. It reads the whole table into memory. If the table can be
/// large, such as with done keys, use [`lease_summary`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_monitor!()]
/// let names = Names::of_program()?;
/// for lease in monitor::leases(conn, &advisory_runtime::lease::Table::new(), &names).await? {
///     println!("{} until {:?}", lease.row.holder, lease.row.expires_at);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn leases<C: Connection>(
    conn: &mut C,
    table: &Table,
    names: &Names,
) -> Result<Vec<Lease>, Error> {
    Ok(named(table.list(conn).await?, names))
}

/// Finds the lease of one key, or the key if it is done; `None` if the key is free. It reads one
/// row, by [`Table::find`], with its errors.
pub async fn lease<C: Connection>(
    conn: &mut C,
    table: &Table,
    names: &Names,
    key: impl Into<Request>,
) -> Result<Option<Lease>, Error> {
    let row = table.find(conn, key).await?;
    Ok(named(row.into_iter().collect(), names).pop())
}

/// Finds the leases and the done keys that have a SHA-256 starting with these hexadecimal digits.
/// It returns at most two, which shows whether the digits are enough, and none if a character is
/// not a digit. It reads a range of the table's primary key, with the errors of [`Table::find`].
pub async fn leases_by_hash<C: Connection>(
    conn: &mut C,
    table: &Table,
    names: &Names,
    digits: &str,
) -> Result<Vec<Lease>, Error> {
    let (Some(first), Some(last)) = (hash_of(digits, 0), hash_of(digits, 0xf)) else {
        return Ok(Vec::new());
    };
    Ok(named(table.between(conn.pg(), [first, last]).await?, names))
}

/// Returns the hash that starts with these digits and repeats `rest` after them.
fn hash_of(digits: &str, rest: u8) -> Option<[u8; 32]> {
    let mut hash = [(rest << 4) | rest; 32];
    for (at, digit) in digits.chars().enumerate() {
        let byte = hash.get_mut(at / 2)?;
        let digit = u8::try_from(digit.to_digit(16)?).ok()?;
        *byte = match at % 2 {
            0 => (digit << 4) | (*byte & 0xf),
            _ => (*byte & 0xf0) | digit,
        };
    }
    Some(hash)
}

/// Counts the leases of a table by pattern, and lists at most `limit` held leases, `limit` done
/// keys and `limit` patterns.
///
/// With a `filter` it reads only leases that contain this text, in upper or lower case, in their
/// holder, in their key or pattern, or in one of their [`names`](Lease::names).
///
/// # Locking
///
/// None: two `SELECT`s, each of which scans the table at the server.
///
/// # Errors
///
/// Those of [`Table::list`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_monitor!()]
/// let table = advisory_runtime::lease::Table::new();
/// let summary = monitor::lease_summary(conn, &table, &Names::of_program()?, None, 10).await?;
/// for count in summary.counts {
///     println!("{:?}: {} held, {} done", count.pattern, count.held, count.done);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn lease_summary<C: Connection>(
    conn: &mut C,
    table: &Table,
    names: &Names,
    filter: Option<&str>,
    limit: u32,
) -> Result<LeaseSummary, Error> {
    let (patterns, hashes) = filter.map_or_else(Default::default, |text| names.leases_with(text));
    let of_names = (&patterns[..], &hashes[..]);
    let (rows, counts) = table.summary(conn.pg(), filter, of_names, limit).await?;
    let counts = counts.into_iter().map(|(pattern, held, done)| LeaseCount {
        pattern,
        held: held.unsigned_abs(),
        done: done.unsigned_abs(),
    });
    Ok(LeaseSummary {
        leases: named(rows, names),
        counts: counts.collect(),
    })
}

pub(crate) fn named(rows: Vec<Row>, names: &Names) -> Vec<Lease> {
    let leases = rows.into_iter().map(|row| Lease {
        names: names.of_lease(&row),
        row,
    });
    leases.collect()
}

#[cfg(test)]
mod tests {
    use super::hash_of;

    #[test]
    fn digits_are_the_start_of_a_hash() {
        let start = |digits, rest| hash_of(digits, rest).map(|hash| hash[..3].to_vec());
        assert_eq!(start("a1B", 0), Some(vec![0xa1, 0xb0, 0]));
        assert_eq!(start("a1B", 0xf), Some(vec![0xa1, 0xbf, 0xff]));
        assert_eq!(start("", 0xf), Some(vec![0xff; 3]));
        assert_eq!(start("xy", 0), None);
        assert!(hash_of(&"0".repeat(64), 0).is_some());
        assert_eq!(hash_of(&"0".repeat(65), 0), None);
    }
}
