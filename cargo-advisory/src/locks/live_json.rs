//! Live locks as JSON. `docs/json.md` documents the schema.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use advisory_runtime::monitor::{
    Activity, Backend, Certainty, ClaimedRow, Holder, HolderId, Lease, LeaseCount, Lock, Name,
    Scope, Waiter,
};
use advisory_runtime::{Key, Mode};
use serde_json::{Value, json};

use super::Snapshot;
use super::renewal;
use crate::json::VERSION;
use crate::text::hex;

pub(super) fn value(snapshot: &Snapshot) -> Value {
    let locks = &snapshot.locks;
    let leases = snapshot.leases.as_ref();
    let count = |count: &LeaseCount| json!({ "pattern": count.pattern, "held": count.held, "done": count.done });
    json!({
        "version": VERSION,
        "database": locks.database,
        "role": locks.role,
        "sees_all": locks.sees_all,
        "locks": snapshot.wanted().map(lock).collect::<Vec<_>>(),
        "backends": locks.backends.iter().map(backend).collect::<Vec<_>>(),
        "leases": leases.map(|leases| leases.leases.iter().map(lease).collect::<Vec<_>>()),
        "lease_counts": leases.map(|leases| leases.counts.iter().map(count).collect::<Vec<_>>()),
        "claims": snapshot.claims.rows.iter().map(|(table, row)| claim(table, row)).collect::<Vec<_>>(),
        "unfound_claims": snapshot.claims.unfound.keys().collect::<Vec<_>>(),
    })
}

fn lock(lock: &Lock) -> Value {
    let mut value = key_json(lock.key);
    value["names"] = lock.names.iter().map(name_json).collect();
    value["holders"] = lock.holders.iter().map(holder).collect();
    value["waiters"] = lock.waiters.iter().map(waiter).collect();
    let tries = lock.tries.iter();
    value["tries"] = tries
        .map(|one| json!({ "pid": one.pid, "ago_ms": millis(one.ago) }))
        .collect();
    value
}

pub(crate) fn key_json(key: Key) -> Value {
    let (space, number, pair) = match key {
        Key::BigInt(number) => ("bigint", Some(number), None),
        Key::IntInt(first, second) => ("(int, int)", None, Some([first, second])),
    };
    json!({ "key_space": space, "number": number, "pair": pair })
}

pub(crate) fn name_json(name: &Name) -> Value {
    let certainty = match name.certainty {
        Certainty::Certain => "certain",
        Certainty::Likely => "likely",
        _ => "possible",
    };
    let sites = name.sites.iter().map(|site| {
        json!({
            "function": crate::inventory::path(site),
            "place": crate::inventory::file_line(site),
            "crate": site.krate,
            "component": site.component,
            "purpose": site.purpose,
        })
    });
    json!({
        "certainty": certainty,
        "name": name.name,
        "key": name.key,
        "sites": sites.collect::<Vec<_>>(),
    })
}

fn holder(holder: &Holder) -> Value {
    let (pid, prepared) = match &holder.id {
        HolderId::Prepared {
            gid, owner, age, ..
        } => {
            let prepared = json!({ "gid": gid, "owner": owner, "age_ms": millis(*age) });
            (None, Some(prepared))
        }
        HolderId::Backend(pid) => (Some(*pid), None),
        _ => (None, None),
    };
    let scope = holder.scope.map(|scope| match scope {
        Scope::Xact => "xact",
        Scope::Session => "session",
    });
    json!({
        "pid": pid,
        "prepared": prepared,
        "mode": mode(holder.mode),
        "scope": scope,
        "held_at_least_ms": holder.held_at_least.map(millis),
        "held_at_most_ms": holder.held_at_most.map(millis),
    })
}

fn waiter(waiter: &Waiter) -> Value {
    json!({
        "pid": waiter.pid,
        "mode": mode(waiter.mode),
        "waited_ms": millis(waiter.waited),
        "held_by": waiter.held_by,
        "behind": waiter.behind,
    })
}

const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

fn backend(backend: &Backend) -> Value {
    let mut value = json!({
        "pid": backend.pid,
        "user": backend.user,
        "application": backend.application,
        "is_pooled": backend.is_pooled,
        "comment": backend.comment.as_ref().map(|comment| &comment.text),
        "traceparent": backend.comment.as_ref().and_then(|comment| comment.traceparent.as_ref()),
        "waits_for": backend.waits_for,
        "blocked_by": backend.blocked_by,
        "activity": "gone",
        "needs": null,
        "state": null,
        "state_age_ms": null,
        "transaction_age_ms": null,
        "client": null,
        "query": null,
    });
    match &backend.activity {
        Activity::Visible {
            state,
            state_age,
            query,
            transaction_age,
            client,
            ..
        } => {
            value["activity"] = "visible".into();
            value["state"] = state.to_string().into();
            value["state_age_ms"] = millis(*state_age).into();
            value["transaction_age_ms"] = transaction_age.map(millis).into();
            value["client"] = client.map(|client| client.to_string()).into();
            value["query"] = query.as_str().into();
        }
        Activity::Hidden { needs, .. } => {
            value["activity"] = "hidden".into();
            value["needs"] = (*needs).into();
        }
        _ => {}
    }
    value
}

pub(crate) fn lease(lease: &Lease) -> Value {
    let row = &lease.row;
    let renewal = renewal::of(lease);
    json!({
        "key_hash": hex(&row.key_hash),
        "pattern": row.pattern,
        "key": row.key,
        "is_done": row.is_done,
        "names": lease.names.iter().map(name_json).collect::<Vec<_>>(),
        "holder": row.holder,
        "data": row.data,
        "token": row.token.get(),
        "renewed_ms_ago": renewal.as_ref().map(|renewal| millis(renewal.ago)),
        "is_overdue": renewal.map(|renewal| renewal.is_overdue),
        "acquired_at_ms": since(row.acquired_at),
        "expires_at_ms": (!row.never_expires()).then(|| since(row.expires_at)),
        "remaining_ms": (!row.never_expires()).then(|| millis(row.remaining)),
    })
}

fn claim(table: &str, row: &ClaimedRow) -> Value {
    json!({
        "table": table,
        "row": row.key,
        "locked_by": row.locked_by,
        "remaining_ms": (row.remaining < Duration::MAX).then(|| millis(row.remaining)),
        "expired_ms_ago": row.remaining.is_zero().then(|| millis(row.expired)),
    })
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn since(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}
