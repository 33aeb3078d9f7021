//! This project's migrations: the lease table, what claims need, the functions that compute keys, the trigger that guards a table.

mod require;

use advisory_runtime::claim::Schema;
use advisory_runtime::lease::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP};
use advisory_runtime::sql_functions::{ADVISORY_KEYS_DOWN, ADVISORY_KEYS_UP};
use clap::{Args, Subcommand};

use crate::cli::{self, Output};
use crate::failure::Failure;

/// Prints the SQL of a migration: `lease`, `claim`, `keys` or `require`
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    long_about = "Prints the SQL of a migration, for a folder of Diesel migrations:\n\n    diesel migration generate advisory_lease\n    \
                  cargo advisory migration lease -o migrations/*_advisory_lease/up.sql\n    \
                  cargo advisory migration lease --down -o migrations/*_advisory_lease/down.sql"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    migration: Migration,
}

#[derive(Subcommand)]
enum Migration {
    /// The lease table
    Lease {
        #[arg(
            long,
            help = "Its name, such as `app_lease` or `locks.app_lease` [default: public.advisory_lease]"
        )]
        table: Option<String>,
        /// Prints `down.sql`, which drops the table, and with it the last fencing token
        #[arg(long)]
        down: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Columns, indexes and triggers for a table whose rows are claimed
    ///
    /// Prints what makes a queue of a table: the columns of `#[claim(run_at, attempts)]`, the indexes, and the triggers that wake up an
    /// idle `claim::Worker`. What exists already is left as it is.
    Claim(Claim),
    /// SQL functions that compute the same keys in other programs, such as `advisory_key('booking:42')`
    Keys {
        /// Prints `down.sql`, which drops the functions
        #[arg(long)]
        down: bool,
        #[command(flatten)]
        output: Output,
    },
    Require(require::Arguments),
}

#[derive(Args)]
struct Claim {
    /// The table: `mail`, or `shop.mail`
    #[arg(long)]
    table: String,
    #[arg(
        long,
        value_name = "COLUMNS",
        help = "The columns of `#[claim(order = \"…\")]`, such as `priority desc, id` [default: run_at, id]"
    )]
    order: Option<String>,
    /// The column of `#[claim(per = "…")]`, which the table has already
    #[arg(long, value_name = "COLUMN")]
    per: Option<String>,
    /// Prints `down.sql`, which drops the columns, and what they contain
    #[arg(long)]
    down: bool,
    #[command(flatten)]
    output: Output,
}

impl Claim {
    fn sql(&self) -> Result<String, Failure> {
        let mut schema = Schema::of(&self.table);
        if let Some(per) = &self.per {
            schema = schema.per(per);
        }
        if let Some(order) = &self.order {
            let columns = order.split(',').map(column);
            schema = schema.order(columns.collect::<Result<Vec<_>, _>>()?);
        }
        Ok(if self.down {
            schema.down()
        } else {
            schema.up()
        })
    }
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<bool, Failure> {
        match &self.migration {
            Migration::Lease {
                table,
                down,
                output,
            } => output.write(&lease(table.as_ref(), *down)?)?,
            Migration::Claim(claim) => claim.output.write(&claim.sql()?)?,
            Migration::Keys {
                down: false,
                output,
            } => output.write(ADVISORY_KEYS_UP)?,
            Migration::Keys { down: true, output } => output.write(ADVISORY_KEYS_DOWN)?,
            Migration::Require(require) => require.run()?,
        }
        Ok(true)
    }
}

/// The table of leases.
fn lease(name: Option<&String>, is_down: bool) -> Result<String, Failure> {
    // The default one as the file has it, with its comments.
    if name.is_none() {
        let sql = if is_down {
            ADVISORY_LEASE_DOWN
        } else {
            ADVISORY_LEASE_UP
        };
        return Ok(sql.to_owned());
    }
    let table = cli::lease_table(name)?;
    Ok(if is_down { table.down() } else { table.up() })
}

/// A column of an order, and whether it is descending.
fn column(part: &str) -> Result<(&str, bool), Failure> {
    let words: Vec<&str> = part.split_whitespace().collect();
    match words[..] {
        [column] => Ok((column, false)),
        [column, direction] if direction.eq_ignore_ascii_case("asc") => Ok((column, false)),
        [column, direction] if direction.eq_ignore_ascii_case("desc") => Ok((column, true)),
        _ => Err(Failure::Input(format!(
            "`--order` cannot contain `{}`: write columns, such as `--order 'priority desc, id'`",
            part.trim()
        ))),
    }
}
