//! Reports for people: they may be slightly out of date, but never show half of a change.

use crate::Office;
use advisory_runtime::advisory_lock;
use chrono::{Datelike, NaiveDate};
use lets_domain::{OwnerId, TenantId};
use lets_store::{Error, Result};

impl Office {
    /// What a tenant invoiced in a year; waits for one that is being written.
    #[advisory_lock(
        key = "invoices:<tenant: uuid>:<year>",
        name = "invoice-series",
        component = "invoices",
        mode = "shared",
        conn = self.pool.get()?
    )]
    pub fn invoiced(&self, tenant: TenantId, year: i32) -> Result<i64> {
        Err(Error::Refused)
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
        Err(Error::Refused)
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
    pub fn tax(&self, tenant_no: i32) -> Result<i64> {
        Err(Error::Refused)
    }
}
