//! Changes of many rows that a clerk starts by hand, and sometimes a second clerk an hour later.

use crate::Office;
use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use lets_store::schema::{guests, runs};
use lets_store::{Refusal, Result};

impl Office {
    /// Rewrites all addresses in lower case, in steps that commit by themselves.
    #[advisory_lock(
        key = "backfill:emails",
        scope = "session",
        wait = "never",
        on_held = Err(Refusal::Busy.into()),
        max_hold = "1h",
        component = "back office",
        conn = self.pool.get()?
    )]
    pub fn lower_emails(&self, step: i64) -> Result<usize> {
        let mut changed = 0;
        loop {
            let some = guests::table
                .filter(guests::email.ne(lower(guests::email)))
                .select(guests::id)
                .limit(step);
            let some: Vec<uuid::Uuid> = some.load(conn)?;
            if some.is_empty() {
                return Ok(changed);
            }
            changed += diesel::update(guests::table.filter(guests::id.eq_any(some)))
                .set(guests::email.eq(lower(guests::email)))
                .execute(conn)?;
        }
    }

    /// A step of the day's work is done once; `name` says which.
    #[advisory_lock(
        key = "backfill:<name>:<day>",
        name = "backfill-step",
        with(day = today),
        component = "back office",
        conn = self.pool.get()?,
        queue = 2,
        wait = "30s"
    )]
    pub fn step(&self, name: &str, today: chrono::NaiveDate) -> Result<bool> {
        let job = format!("{name} {today}");
        let done = runs::table.filter(runs::job.eq(&job)).count();
        if done.get_result::<i64>(conn)? > 0 {
            return Ok(false);
        }
        diesel::insert_into(runs::table)
            .values(runs::job.eq(job))
            .execute(conn)?;
        Ok(true)
    }
}

#[diesel::declare_sql_function]
extern "SQL" {
    fn lower(text: diesel::sql_types::Text) -> diesel::sql_types::Text;
}
