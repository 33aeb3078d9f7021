//! Writes the waits of a log as JSON. `docs/json.md` documents the members.

use serde_json::{Value, json};

use super::event::LockId;
use super::waits::{Deadlock, Incident, Waits, ordered};
use crate::json::{VERSION, pretty};
use crate::locks::{key_json, millis, name_json};

pub(super) fn write(waits: &Waits) -> String {
    let locks = ordered(waits).into_iter().map(|(lock, of_it)| {
        let mut value = key_json(lock.key);
        let holders = of_it.holders.iter();
        let holders = holders
            .map(|(pid, count)| json!({ "pid": pid, "who": waits.who(*pid), "waits": count }));
        let more = json!({
            "database": of_it.database,
            "names": of_it.names.iter().map(name_json).collect::<Vec<_>>(),
            "waits": of_it.waits,
            "longest_ms": millis(of_it.longest),
            "total_ms": millis(of_it.total),
            "cancelled": of_it.cancelled,
            "deadlocks": of_it.deadlocks,
            "last": of_it.last.as_ref().map(|time| &time.text),
            "holders": holders.collect::<Vec<_>>(),
        });
        extend(&mut value, more);
        value
    });
    let value = json!({
        "version": VERSION,
        "messages": waits.records,
        "first": waits.first.as_ref().map(|time| &time.text),
        "last": waits.last.as_ref().map(|time| &time.text),
        "not_over": waits.open(),
        "locks": locks.collect::<Vec<_>>(),
        "deadlocks": waits.deadlocks.iter().map(|it| deadlock_json(waits, it)).collect::<Vec<_>>(),
    });
    pretty(&value)
}

fn deadlock_json(waits: &Waits, deadlock: &Deadlock) -> Value {
    let sessions = deadlock.waits.iter().map(|wait| {
        json!({
            "pid": wait.pid,
            "who": waits.who(wait.pid),
            "lock": wait.lock.map(|lock| lock_json(waits, lock)),
            "target": wait.target,
            "blocked_by": wait.blocked_by,
            "statement": wait.statement,
        })
    });
    json!({
        "time": deadlock.time.as_ref().map(|time| &time.text),
        "victim": deadlock.victim,
        "sessions": sessions.collect::<Vec<_>>(),
    })
}

fn lock_json(waits: &Waits, lock: LockId) -> Value {
    let mut value = key_json(lock.key);
    let names = waits.locks.get(&lock).map(|of_it| &of_it.names);
    let names = names.into_iter().flatten().map(name_json);
    value["names"] = names.collect();
    value
}

fn extend(value: &mut Value, more: Value) {
    if let (Value::Object(value), Value::Object(more)) = (value, more) {
        value.extend(more);
    }
}

pub(super) fn line(waits: &Waits, incident: &Incident) -> String {
    let time = waits.last.as_ref().map(|time| &time.text);
    let locks = |locks: &[LockId]| -> Vec<Value> {
        locks.iter().map(|lock| lock_json(waits, *lock)).collect()
    };
    let value = match incident {
        Incident::Wait(wait) => {
            let event = if wait.is_over { "acquired" } else { "waiting" };
            let mut value = json!({
                "version": VERSION, "event": event, "time": time, "pid": wait.pid, "who": waits.who(wait.pid), "locks": locks(&[wait.lock]),
                "waited_ms": millis(wait.waited),
            });
            if !wait.is_over {
                value["holders"] = json!(wait.holders);
            }
            value
        }
        Incident::Cancelled {
            pid,
            locks: of_it,
            waited,
            reason,
        } => json!({
            "version": VERSION, "event": "cancelled", "time": time, "pid": pid, "who": pid.and_then(|pid| waits.who(pid)),
            "locks": locks(of_it), "waited_ms": waited.map(millis), "reason": reason,
        }),
        Incident::Deadlock => {
            let mut value = json!({ "version": VERSION, "event": "deadlock" });
            if let Some(deadlock) = waits.deadlocks.last() {
                extend(&mut value, deadlock_json(waits, deadlock));
            }
            value
        }
    };
    crate::json::line(&value)
}
