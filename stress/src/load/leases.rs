//! Operations under a lease: fenced writes, work that is done once, terms of a leader, and the
//! removal of expired rows.

use super::Load;
use super::bookings::until;
use crate::absence::Absence;
use crate::absence::TTL;
use crate::bug::Bug;
use crate::buggy;
use crate::chance::Chance;
use crate::clock::pass;
use crate::leased_work::{self, LeasedWork};
use crate::operation_kind::OperationKind;
use crate::outcome::{self, Outcome};
use advisory_runtime::lease::{self, Error, Lease, Request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const LEASES: u32 = 4;
/// The number of the leader's lease.
const LEADER: i64 = 50;
/// How often the leader writes before it lets others lead.
const TERM: u32 = 20;
/// How many ticks are drawn before the next work begins.
const TICKS_A_WORK: i64 = 100;

impl Load {
    /// A write, or work that is done once.
    pub(super) async fn lease(&self, kind: OperationKind, chance: &mut Chance) {
        let is_buggy = self.assignment.bug.is_some();
        let number = if kind == OperationKind::Complete {
            self.stage(TICKS_A_WORK) + i64::from(chance.below(2))
        } else {
            i64::from(chance.below(if is_buggy { 1 } else { LEASES }))
        };
        let mut work = self.leased_work(kind, number);
        work.pause = match (chance.below(20), self.assignment.bug) {
            // Long enough that the lease is renewed.
            (0, None) | (0..5, Some(Bug::Now)) => TTL / 2,
            (_, Some(_)) => Duration::from_millis(5),
            (1..6, None) => Duration::from_millis(20),
            _ => Duration::ZERO,
        };
        work.is_dropped = is_buggy && chance.below(4) == 0;
        let waits = chance.below(4) == 0;
        let drops = self.assignment.bug.is_none() && chance.below(12) == 0;
        if !is_buggy && kind == OperationKind::Lease {
            work.absence = self.lease_absence.take();
        }
        let drops = drops && work.absence.is_none();
        let limit = drops.then(|| Duration::from_millis(chance.below(30).into()));
        let (leases, pool) = (&self.leases, &self.pool);
        let call = async {
            match (self.assignment.bug, kind) {
                (Some(bug), OperationKind::Lease) => {
                    return buggy::run_leased(bug, pool, &work).await;
                }
                (Some(_), _) => buggy::once(leases, pool, number, &work).await?,
                (None, OperationKind::Complete) => {
                    leased_work::once(leases, pool, number, &work).await?;
                }
                (None, _) if work.absence == Some(Absence::Lingers) => {
                    leased_work::linger(leases, pool, number, &work).await?;
                }
                (None, _) if waits => leased_work::wait(leases, pool, number, &work).await?,
                (None, _) => leased_work::never_wait(leases, pool, number, &work).await?,
            }
            Ok(true)
        };
        let ended = until(Box::pin(call), &work.hangs, limit).await;
        if self.ended_work(kind, &work, ended.as_ref()) == Outcome::Failed {
            pass(Duration::from_millis(50)).await;
        }
    }

    fn leased_work(&self, kind: OperationKind, number: i64) -> LeasedWork<'_> {
        LeasedWork {
            op: self.begin(kind, number),
            number,
            pause: Duration::from_millis(20),
            log: &self.log,
            absence: None,
            is_dropped: false,
            hangs: Notify::new(),
            has_ended: AtomicBool::new(false),
        }
    }

    fn ended_work(
        &self,
        kind: OperationKind,
        work: &LeasedWork<'_>,
        ended: Option<&Result<bool, Error>>,
    ) -> Outcome {
        let has_ended = work.has_ended.load(Ordering::Relaxed);
        let (outcome, why) = match ended {
            Some(Ok(true)) => (Outcome::Confirmed, "-".to_owned()),
            Some(Ok(false)) => (Outcome::Refused, "Held".to_owned()),
            Some(Err(error)) if has_ended => {
                (Outcome::Unknown, outcome::name(error, error.database()))
            }
            Some(Err(error)) => (
                outcome::of_lease_error(error),
                outcome::name(error, error.database()),
            ),
            None if has_ended => (Outcome::Unknown, "Dropped".to_owned()),
            None => (Outcome::Dropped, "Dropped".to_owned()),
        };
        self.end(kind, work.op, outcome, 0, &why);
        outcome
    }

    pub(super) async fn sweep(&self) {
        let op = self.begin(OperationKind::Sweep, 0);
        match lease::sweep(&self.leases).await {
            Ok(_) => self.end(OperationKind::Sweep, op, Outcome::Confirmed, 0, "-"),
            Err(error) => {
                let why = outcome::name(&error, error.database());
                self.end(OperationKind::Sweep, op, Outcome::Failed, 0, &why);
            }
        }
    }

    /// Campaigns, and writes as the leader, until the load ends.
    pub(crate) async fn lead(&self) {
        match self.assignment.bug {
            None if !self.assignment.is_pooled => self.campaign().await,
            Some(Bug::UnfencedLeader) => self.lead_unfenced().await,
            _ => {}
        }
    }

    async fn campaign(&self) {
        let over = async {
            while !self.is_over() {
                pass(Duration::from_millis(20)).await;
            }
        };
        let campaign = Request::text(format!("leased:{LEADER}")).ttl(TTL);
        let ended = lease::lead_until(&self.leases, campaign, over, async |term: Lease| {
            let mut writes = 0;
            while term.is_held() && writes < TERM {
                let work = self.leased_work(OperationKind::Lead, LEADER);
                let worked = work.run(&self.pool, &term).await;
                self.ended_work(OperationKind::Lead, &work, Some(&worked.map(|()| true)));
                pass(Duration::from_millis(20)).await;
                writes += 1;
            }
            Ok(())
        });
        let ended: Result<(), Error> = Box::pin(ended).await;
        if let Err(error) = ended {
            let op = self.begin(OperationKind::Lead, LEADER);
            let why = outcome::name(&error, error.database());
            self.end(OperationKind::Lead, op, Outcome::Failed, 0, &why);
        }
    }

    async fn lead_unfenced(&self) {
        while !self.is_over() {
            let Ok(term) = buggy::term(&self.pool, LEADER).await else {
                pass(Duration::from_millis(20)).await;
                continue;
            };
            let since = Instant::now();
            while since.elapsed() < TTL * 2 && !self.is_over() {
                let work = self.leased_work(OperationKind::Lead, LEADER);
                let written = buggy::write(&self.pool, &term, &work).await;
                self.ended_work(OperationKind::Lead, &work, Some(&written));
                pass(Duration::from_millis(20)).await;
            }
        }
    }
}
