//! Reports for people: they may be slightly out of date, but never show half of a change.

use crate::Office;
use advisory_runtime::advisory_lock;
use chrono::{Datelike, NaiveDate};
use diesel::prelude::*;
use lets_domain::{Cents, OwnerId, TenantId};
use lets_store::Result;
use lets_store::schema::{bookings, invoices, properties, rooms};

impl Office {
    /// What a tenant invoiced in a year; waits for one that is being written.
    #[advisory_lock(
        key = "invoices:<tenant: uuid>:<year>",
        name = "invoice-series",
        component = "invoices",
        mode = "shared",
        conn = self.pool.get()?
    )]
    pub fn invoiced(&self, tenant: TenantId, year: i32) -> Result<Cents> {
        let totals = invoices::table
            .filter(invoices::tenant_id.eq(tenant.0))
            .filter(invoices::year.eq(year))
            .select(invoices::total);
        Ok(totals.load::<i64>(conn)?.into_iter().map(Cents).sum())
    }

    /// Nights that an owner's rooms are let, and how many could be. One report of an owner's week at a time: it is slow.
    #[advisory_lock(
        key = "occupancy:<owner: int>:<year>-<week: uint>",
        with(year = monday.iso_week().year(), week = monday.iso_week().week()),
        component = "reports",
        wait = "20s",
        max_hold = "2m",
        conn = self.pool.get()?
    )]
    pub fn occupancy(&self, owner: OwnerId, monday: NaiveDate) -> Result<(i64, i64)> {
        let week = monday.week(chrono::Weekday::Mon);
        let (first, last) = (week.first_day(), week.last_day());
        let rooms: i64 = rooms::table
            .inner_join(properties::table)
            .filter(properties::owner_id.eq(owner.0))
            .count()
            .get_result(conn)?;
        let stays: Vec<(NaiveDate, NaiveDate)> = bookings::table
            .inner_join(rooms::table.inner_join(properties::table))
            .filter(properties::owner_id.eq(owner.0))
            .filter(bookings::state.ne("cancelled"))
            .filter(bookings::arrives.le(last))
            .filter(bookings::departs.gt(first))
            .select((bookings::arrives, bookings::departs))
            .load(conn)?;
        let after = last.succ_opt().unwrap_or(last);
        let nights = stays
            .into_iter()
            .map(|(arrives, departs)| (departs.min(after) - arrives.max(first)).num_days());
        Ok((nights.sum(), rooms * 7))
    }

    /// The tax report, under the number that the accountants' own script takes: `pg_advisory_lock(7, tenant's number)`.
    #[advisory_lock(
        key = (7, tenant_no),
        name = "tax-report",
        scope = "session",
        wait = "1m",
        component = "reports",
        conn = self.pool.get()?
    )]
    pub fn tax(&self, tenant_no: i32, tenant: TenantId, per_mille: i64) -> Result<Cents> {
        let totals = invoices::table
            .filter(invoices::tenant_id.eq(tenant.0))
            .select(invoices::total);
        let sum: Cents = totals.load::<i64>(conn)?.into_iter().map(Cents).sum();
        let _ = tenant_no;
        Ok(Cents(sum.0 * per_mille / 1_000))
    }
}
