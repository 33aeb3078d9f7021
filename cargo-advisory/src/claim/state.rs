//! The state of a row, and the rows that a command is about, in plain SQL.

use clap::ValueEnum;

use super::resolved::Resolved;
use crate::failure::{Result, bail};
use crate::job_table::quoted;
use crate::text::{joined, one_line};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum State {
    /// The next claim can take it
    Available,
    /// It cannot be claimed before a time
    Scheduled,
    /// A worker has it
    Running,
    /// Its worker has neither renewed nor ended it in time
    Expired,
    /// It was given up
    Failed,
    /// It was completed
    Done,
}

impl State {
    pub(super) const PENDING: &[Self] = &[
        Self::Available,
        Self::Scheduled,
        Self::Running,
        Self::Expired,
    ];

    /// The name that the command line has too.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::from_str(name, false).ok()
    }

    pub(super) const fn is_pending(self) -> bool {
        !matches!(self, Self::Failed | Self::Done)
    }

    /// The argument that names the column with the time of this state.
    pub(super) const fn time(self) -> &'static str {
        match self {
            Self::Available | Self::Scheduled => "run_at",
            Self::Running | Self::Expired => "locked_until",
            Self::Failed => "failed_at",
            Self::Done => "completed_at",
        }
    }
}

impl Resolved {
    pub(super) fn state(&self) -> String {
        self.by_state(|state| format!("'{}'", state.name()))
    }

    /// An expression that has another value in each state.
    fn by_state(&self, value: impl Fn(State) -> String) -> String {
        use State::{Available, Done, Expired, Failed, Running, Scheduled};
        let cases = [Done, Failed, Running, Expired, Scheduled].map(|state| {
            let (column, now) = (self.column(state.time())?, self.now(state.time()));
            let condition = match state {
                Running | Scheduled => format!("{column} > {now}"),
                _ => format!("{column} IS NOT NULL"),
            };
            Some(format!("WHEN {condition} THEN {} ", value(state)))
        });
        let cases: String = cases.into_iter().flatten().collect();
        format!("CASE {cases}ELSE {} END", value(Available))
    }

    /// The condition that selects the rows in one of these states. An index can find them by it.
    pub(super) fn of_states(&self, states: &[State]) -> String {
        let mut conditions: Vec<String> = Vec::new();
        if states.iter().all(|state| state.is_pending()) {
            conditions.extend(self.table.pending());
        }
        if let [state @ (State::Failed | State::Done)] = states {
            let column = self.column(state.time());
            let ended = column.map_or("false".to_owned(), |it| format!("{it} IS NOT NULL"));
            conditions.push(ended);
        }
        let names = joined(states.iter().map(|state| state.name()), ",");
        conditions.push(format!("{} = ANY ('{{{names}}}'::text[])", self.state()));
        conditions.join(" AND ")
    }

    /// The time for which a row has been in its state, in seconds: negative if the state begins or
    /// ends in the future, and `NULL` if that is never or not known.
    pub(super) fn age(&self) -> String {
        self.by_state(|state| match self.column(state.time()) {
            Some(column) => format!(
                "CASE WHEN isfinite({column}) THEN date_part('epoch', {} - {column}) END",
                self.now(state.time())
            ),
            None => "NULL::float8".to_owned(),
        })
    }
}

/// The rows that a command is about: a condition with `$1`, `$2`, …, and the values of these.
#[derive(Default)]
pub(super) struct Rows {
    conditions: Vec<String>,
    pub(super) binds: Vec<String>,
}

impl Rows {
    /// Selects the rows that have these texts in their columns, such as `kind=mail`.
    pub(super) fn of(table: &Resolved, filters: &[String]) -> Result<Self> {
        let mut rows = Self::default();
        for filter in filters {
            let Some((column, value)) = filter.split_once('=') else {
                bail!(
                    "`--where {}`: write `--where COLUMN=VALUE`",
                    one_line(filter)
                );
            };
            if table.type_of(column).is_none() {
                bail!("`{}` has no column `{}`", table.label, one_line(column));
            }
            let nth = rows.bind(value);
            rows.add(format!("{}::text = ${nth}", quoted(column)));
        }
        Ok(rows)
    }

    pub(super) fn add(&mut self, condition: String) {
        self.conditions.push(condition);
    }

    /// Selects the rows with one of these keys, `42` or `house,42`.
    pub(super) fn with_keys(&mut self, table: &Resolved, keys: &[String]) -> Result<()> {
        let mut any = Vec::new();
        for key in keys {
            let values: Vec<&str> = if table.key.len() == 1 {
                vec![key]
            } else {
                key.split(',').map(str::trim).collect()
            };
            if values.len() != table.key.len() {
                bail!(
                    "`{}` is not a key of `{}`: write its columns `{}` with commas between them",
                    one_line(key),
                    table.label,
                    joined(table.key.iter().map(|(name, _)| name), ",")
                );
            }
            let columns = table.key.iter().zip(values);
            let columns = columns.map(|((name, sql_type), value)| {
                format!("{} = ${}::{sql_type}", quoted(name), self.bind(value))
            });
            let all = joined(columns, " AND ");
            any.push(format!("({all})"));
        }
        self.add(format!("({})", any.join(" OR ")));
        Ok(())
    }

    pub(super) fn bind(&mut self, value: &str) -> usize {
        self.binds.push(value.to_owned());
        self.binds.len()
    }

    pub(super) fn sql(&self) -> String {
        if self.conditions.is_empty() {
            return "true".to_owned();
        }
        self.conditions.join(" AND ")
    }
}
