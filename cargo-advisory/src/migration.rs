//! This project's migrations: the lease table, the columns and indexes of claims, the functions
//! that compute keys, and the trigger that guards a table.

mod claim;
mod require;

use advisory_runtime::lease::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP};
use advisory_runtime::sql_functions::{ADVISORY_KEYS_DOWN, ADVISORY_KEYS_UP};
use clap::{Args, Subcommand};

use crate::cli::{self, Output};
use crate::failure::Result;

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
    Claim(Box<claim::Arguments>),
    /// SQL functions that compute these keys in other programs, such as
    /// `advisory_key('booking:42')`
    Keys {
        /// Prints `down.sql`, which drops the functions
        #[arg(long)]
        down: bool,
        #[command(flatten)]
        output: Output,
    },
    Require(require::Arguments),
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<bool> {
        match &self.migration {
            Migration::Lease {
                table,
                down,
                output,
            } => {
                let named = cli::lease_table(table.as_ref())?;
                output.write(&match (table, down) {
                    // The file of the default table has comments.
                    (None, true) => ADVISORY_LEASE_DOWN.to_owned(),
                    (None, false) => ADVISORY_LEASE_UP.to_owned(),
                    (Some(_), true) => named.down(),
                    (Some(_), false) => named.up(),
                })?;
            }
            Migration::Claim(claim) => claim.run()?,
            Migration::Keys { down, output } => output.write(if *down {
                ADVISORY_KEYS_DOWN
            } else {
                ADVISORY_KEYS_UP
            })?,
            Migration::Require(require) => require.run()?,
        }
        Ok(true)
    }
}
