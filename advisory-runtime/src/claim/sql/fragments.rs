//! The parts of a statement that depend on the columns of a table, by the names that the files give
//! them.

use super::literal;
use super::row_type::RowType;
use crate::rows::grace;
use crate::sql::qualify::{fill, qualify};
use crate::sql::quoted;
use crate::sql::{IDLE_IN_TRANSACTION, MAKE_DURABLE, OUTCOME, at_most};
use std::borrow::Cow;
use std::time::Duration;

/// The fragments that do not depend on the table. SQL from the caller takes the place of values:
/// the columns of the row, its conditions, and the columns to set.
const FIXED: [(&str, &str); 10] = [
    ("selection", ":selection"),
    ("from", ""),
    ("conditions", ":conditions"),
    ("changes", ":changes"),
    ("lasts", LASTS),
    ("make_durable", MAKE_DURABLE),
    ("outcome", OUTCOME),
    ("fail_if_waited", FAIL_IF_WAITED),
    ("backoff", BACKOFF),
    ("backoff_of_expired", BACKOFF_OF_EXPIRED),
];

/// SQL by its name in the files.
pub(super) struct Fragments<'a> {
    pub(super) row: &'a RowType,
    named: Vec<(Cow<'static, str>, String)>,
}

impl<'a> Fragments<'a> {
    /// Returns the fragments that every statement on the table can contain.
    pub(super) fn of(row: &'a RowType) -> Self {
        let table = &row.table;
        let column = |name: &str| format!("{table}.{}", quoted(name));
        let keys = |of: &dyn Fn(usize, &str) -> String| {
            let keys = row.key.iter().enumerate();
            let keys = keys.map(|(nth, name)| of(nth, name));
            keys.collect::<Vec<_>>().join(", ")
        };
        let columns = keys(&|nth, name| format!("{} AS key_{nth}", column(name)));
        let named = Vec::new();
        let mut fragments = Self { row, named };
        for (name, sql) in FIXED {
            fragments.add(name, sql);
        }
        fragments.add("key", keys(&|_, name| column(name)));
        fragments.add("columns", columns + ", {locked_until} AS until");
        fragments.add(
            "claim_key",
            keys(&|nth, _| format!("advisory_claim.key_{nth}")),
        );
        fragments.add("asked_key", keys(&|nth, _| format!("asked.key_{nth}")));
        fragments.add("asked_columns", keys(&|nth, _| format!("key_{nth}")));
        let order = row.order_by(column);
        let order: Vec<_> = order.iter().map(|column| column.concat()).collect();
        fragments.add("order", order.join(", "));
        fragments.add("table", table.clone());
        fragments.add("table_name", row.table_name());
        fragments.add("table_literal", literal(table));
        fragments.add("locked_until", column(row.until));
        fragments.add("locked_by", column(row.by));
        fragments.add("until_column", quoted(row.until));
        fragments.add("by_column", quoted(row.by));
        fragments.add_column("error", row.error);
        for (name, time) in [
            ("completed", row.completed),
            ("failed", row.failed),
            ("run_at", row.run_at),
        ] {
            fragments.add_column(name, time.map(|time| time.name));
            let [before, after] = time.map_or(["", ""], |time| time.around);
            fragments.add(format!("{name}_open"), before);
            fragments.add(format!("{name}_close"), after);
        }
        let ttl = row.ttl.as_millis();
        fragments.add("prompt", (ttl / 4).min(1_000).to_string());
        fragments.add("ttl", format!("CAST('{ttl} ms' AS pg_catalog.interval)"));
        // `statement_timestamp` is stable, so that the scan of an index can end at it.
        let [open, close] = row.until_around;
        for (name, clock) in [
            ("clock", "clock_timestamp"),
            ("start", "statement_timestamp"),
        ] {
            fragments.add(name, format!("{open}pg_catalog.{clock}(){close}"));
        }
        for (name, text) in [
            ("holder", ":holder"),
            ("asked_holder", "asked.holder"),
            ("claim_holder", "advisory_claim.holder"),
            ("nth_holder", NTH_HOLDER),
        ] {
            fragments.add(name, row.by_value.replace(":holder", text));
        }
        fragments.add("holder_text", row.by_text);
        let [first, longest] = row.backoff.map(|pause| pause.as_millis());
        fragments.add("first_pause", first.to_string());
        fragments.add("longest_pause", longest.to_string());
        fragments.count_attempts();
        let (pauses, last) = pauses(row.backoff);
        fragments.add("pauses", pauses);
        fragments.add("last_pause", last.to_string());
        fragments.add("transaction", transaction(row.ttl));
        fragments
    }

    /// Adds the fragments that depend on the columns for attempts.
    fn count_attempts(&mut self) {
        let row = self.row;
        let Some(column) = row.attempts else {
            self.add("doubled", "1");
            self.add("attempt", "1");
            self.add("is_spent", "false");
            return;
        };
        self.add_column("counted", Some(column.name));
        let attempts = if column.is_nullable {
            "COALESCE({counted}, 0)"
        } else {
            "{counted}"
        };
        self.add("attempts", attempts);
        // An attempt before the last one cannot exceed the column.
        let is_bounded = row.has_last_attempt()
            && row.max_attempts_column.is_none()
            && row
                .max_attempts
                .is_some_and(|most| i64::from(most) <= column.largest);
        let all_but_one = column.largest - 1;
        self.add(
            "attempts_before",
            if is_bounded {
                "{attempts}".to_owned()
            } else {
                format!("LEAST({{attempts}}, {all_but_one})")
            },
        );
        let doubled = "power(2, LEAST(GREATEST({attempts} - 1, 0), 40))";
        self.add("doubled", doubled);
        self.add("attempt", "CAST({attempts} AS int4)");
        let max = match row.max_attempts_column {
            Some(most) => Some(format!("{}.{}", row.table, quoted(most.name))),
            None => row.max_attempts.map(|most| most.to_string()),
        };
        let is_spent = match &max {
            Some(_) => "{attempts} >= {max_attempts}",
            None => "false",
        };
        self.add("is_spent", is_spent);
        self.add("max_attempts", max.unwrap_or_default());
    }

    /// Adds a fragment, which can contain others. It replaces an earlier one with its name.
    pub(super) fn add(&mut self, name: impl Into<Cow<'static, str>>, sql: impl Into<String>) {
        self.named.push((name.into(), sql.into()));
    }

    /// Makes a statement: replaces names by fragments, qualifies the SQL, and removes comments.
    pub(super) fn fill(&self, template: &str) -> String {
        let find = |name: &str| {
            let mut fragments = self.named.iter().rev();
            let found = fragments.find(|(fragment, _)| *fragment == name);
            found.map(|(_, sql)| &**sql)
        };
        qualify(&fill(template, &find))
    }
}

/// The `locked_by` of one of several new claims: `:holder` lacks the twelve last digits of the
/// UUID. The server would take ten times as long to make a UUID for each row.
const NTH_HOLDER: &str =
    "(CAST(:holder AS text) || to_hex(advisory_claim.nth + CAST(17592186044416 AS int8)))";

/// The time from the statement's start to the expiry, including the wait for the row.
const LASTS: &str = "{locked_until} - {start}";

/// Refuses the change if its statement has waited, because the claim may have expired during the
/// wait.
const FAIL_IF_WAITED: &str = "CAST(CASE WHEN clock_timestamp() - statement_timestamp() > CAST('{prompt} ms' AS interval) \
     THEN 'advisory:waited' ELSE '0' END AS int4)";

/// The pause after a failed attempt in milliseconds. It doubles with each attempt, less a random
/// part of up to a half, so that jobs that failed together are not retried together.
const BACKOFF: &str = "LEAST(CAST({first_pause} AS float8) * {doubled}, CAST({longest_pause} AS float8)) \
     * (CAST(1 AS float8) - (random() / CAST(2 AS float8)))";

/// The pause after an expired claim, as an interval. It is not stored in the table, so it depends
/// on the number of the attempt, and its random part on the claim. An array costs the server less
/// than the arithmetic, which it prepares for each statement.
const BACKOFF_OF_EXPIRED: &str = "(CAST('{pauses}' AS interval[]))[LEAST(GREATEST({attempt}, 0), {last_pause})][COALESCE(hashtext({holder_text}) & 7, 0)]";

/// Returns the pauses of [`BACKOFF_OF_EXPIRED`], each in eight steps from a half to the whole, and
/// the index of the last pause.
fn pauses([first, longest]: [Duration; 2]) -> (String, usize) {
    let (mut rows, mut pause) = (vec![first.min(longest)], first.min(longest));
    while rows.len() < 2 || (pause < longest && !pause.is_zero()) {
        rows.push(pause);
        pause = (pause * 2).min(longest);
    }
    rows.push(pause);
    let last = rows.len() - 1;
    let row = |pause: &Duration| {
        let steps = (1..=8).map(|step| format!("{} ms", (*pause * (8 + step) / 16).as_millis()));
        format!("{{{}}}", steps.collect::<Vec<_>>().join(","))
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    (format!("[0:{last}][0:7]={{{}}}", rows.join(",")), last)
}

/// The message of a row that has no attempt left, followed by its last error.
const WHY: &str = "{error_column} = CASE WHEN {locked_until} IS NULL THEN 'no attempt is left: ' || CAST({attempts} AS text) || ' of ' \
     || CAST({max_attempts} AS text) ELSE 'its claim expired at the last attempt' END \
     || COALESCE('; the last error: ' || {error}, '')";

/// The rows that a statement can claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Claimable {
    /// Rows that are due, without a claim or with one that expired at least a backoff ago.
    Due,
    /// Rows that are due, without a claim.
    Unclaimed,
    /// The row with a key, even before it is due.
    ByKey,
}

impl Claimable {
    pub(super) const fn first(skips_expired: bool) -> Self {
        if skips_expired {
            Self::Unclaimed
        } else {
            Self::Due
        }
    }
}

impl Fragments<'_> {
    /// Adds the fragments of the files that lock rows.
    pub(super) fn select(&mut self, which: Claimable, columns: &str, limit: u32) {
        self.add("selected", columns);
        self.add("is_claimable", self.is_claimable(which));
        self.add("limit", limit.to_string());
    }

    /// Leaves out the rows before `:position`. Rows that were ended stay in the index until a
    /// vacuum, and every claim passes over them. There are many if a long transaction prevents the
    /// vacuum. A worker therefore begins where its last claim ended.
    pub(super) fn begin_at_position(&mut self, has_position: bool) {
        if has_position {
            let row = self.row;
            let of = |source: &str| row.order_names(|name| format!("{source}.{}", quoted(name)));
            self.add("order_columns", of(&row.table));
            self.add("position_columns", of("advisory_position"));
            self.add(
                "from",
                " AND ".to_owned() + include_str!("from_position.sql"),
            );
        }
    }

    /// Returns the text of a claim on the row that `rows` locks.
    pub(super) fn claim_one(self, rows: &str) -> String {
        self.claim(rows, include_str!("claim_one.sql"), "{holder}")
    }

    /// Returns the text of a claim on the rows that `rows` locks.
    pub(super) fn claim_many(self, rows: &str) -> String {
        self.claim(rows, include_str!("claim.sql"), "{nth_holder}")
    }

    fn claim(mut self, rows: &str, file: &str, holder: &str) -> String {
        self.add("rows", rows);
        self.add("claimed", self.claimed(holder));
        self.add("returned", "{holder_text}, {lasts}");
        self.fill(file)
    }

    /// Returns the condition on rows that can be claimed. It contains the condition of the index
    /// literally, so that the index can be used.
    pub(super) fn is_claimable(&self, which: Claimable) -> String {
        let mut conditions: Vec<_> = self.row.pending().collect();
        conditions.push(match which {
            Claimable::Unclaimed => "{locked_until} IS NULL",
            Claimable::Due if self.row.run_at.is_some() => {
                "({locked_until} IS NULL OR ({locked_until} <= {clock} \
                 AND ({is_spent} OR ({locked_until} + {backoff_of_expired}) <= {clock})))"
            }
            _ => "({locked_until} IS NULL OR {locked_until} <= {clock})",
        });
        let run_at = self.row.run_at.filter(|_| which != Claimable::ByKey);
        conditions.extend(run_at.map(|column| {
            if column.is_nullable {
                "({run_at} IS NULL OR {run_at} <= {run_at_open}statement_timestamp(){run_at_close})"
            } else {
                "{run_at} <= {run_at_open}statement_timestamp(){run_at_close}"
            }
        }));
        conditions.join(" AND ")
    }

    /// Returns the assignments of a claim. In a row that has no attempt left, only `locked_by`
    /// changes, to NULL; the caller recognizes such a row by that.
    fn claimed(&self, holder: &str) -> String {
        let mut set = vec![
            ("{until_column}", "{clock} + {ttl}", "{locked_until}"),
            ("{by_column}", holder, "NULL"),
        ];
        set.extend(self.row.attempts.map(|_| {
            let counted = "{attempts_before} + 1";
            ("{counted_column}", counted, "{counted}")
        }));
        let set = set.into_iter().map(|(column, value, otherwise)| {
            if self.row.has_last_attempt() {
                format!("{column} = CASE WHEN {{is_spent}} THEN {otherwise} ELSE {value} END")
            } else {
                format!("{column} = {value}")
            }
        });
        set.collect::<Vec<_>>().join(", ")
    }

    /// Returns the assignments that fail a row that has no attempt left. Without a text, the row
    /// keeps its last error.
    pub(super) fn spent(&self, has_text: bool) -> String {
        let mut set = vec!["{until_column} = NULL", "{by_column} = NULL", FAILED_NOW];
        if self.row.error.is_some() && has_text {
            set.push(WHY);
        }
        set.join(", ")
    }

    /// Adds a column, with its table and alone, if the table has it.
    fn add_column(&mut self, name: &'static str, column: Option<&str>) {
        if let Some(column) = column.map(quoted) {
            self.add(name, format!("{}.{column}", self.row.table));
            self.add(format!("{name}_column"), column);
        }
    }
}

pub(super) const RENEWED: &str = "{until_column} = {clock} + {ttl}";
/// Claims a row that has no attempt left, so that it is not the first again at once.
pub(super) const PARKED: &str = "{until_column} = {clock} + {ttl}, {by_column} = {holder}";

pub(super) const COMPLETED_NOW: &str =
    "{completed_column} = {completed_open}clock_timestamp(){completed_close}";
pub(super) const FAILED_NOW: &str =
    "{failed_column} = {failed_open}clock_timestamp(){failed_close}";

/// Returns the columns that read the id of the open transaction and limit its idle time. Otherwise
/// a worker that stops in it would keep the row locked.
fn transaction(ttl: Duration) -> String {
    let millis = grace(ttl).as_millis();
    let bound = at_most(
        IDLE_IN_TRANSACTION,
        &format!("CAST('{millis} ms' AS pg_catalog.interval)"),
        &format!("CAST({millis} AS pg_catalog.int8)"),
    );
    format!(
        "CAST(CAST(pg_catalog.pg_current_xact_id() AS pg_catalog.text) AS pg_catalog.int8), {bound}"
    )
}
