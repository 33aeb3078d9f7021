//! Judges the timeouts of this role.

use std::time::Duration;

use super::facts::Facts;
use super::{Diagnosis, Level, RELOAD, alter_role, alter_system};
use crate::duration::{exact, short};

/// The time within which a client that has vanished should be noticed.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// A wait for a lock should not last longer, unless the call says so.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn judge(facts: &Facts) -> Vec<Diagnosis> {
    vec![
        lock_timeout(facts),
        statement_timeout(facts),
        should_be_set(
            facts,
            "idle_in_transaction_session_timeout",
            "'60s'",
            "a client that stops inside a transaction keeps its locks until it is killed",
            "a client that stops inside a transaction loses its session, and with it its locks",
        ),
        transaction_timeout(facts),
        idle_session(facts),
        isolation(facts),
        log_lock_waits(facts),
        deadlock_timeout(facts),
        should_be_set(
            facts,
            "client_connection_check_interval",
            "'2s'",
            "if a client is killed while its session waits or runs a statement, the session goes on",
            "if a client is killed while its session waits, the session leaves the queue within that time",
        ),
        keepalives(facts),
        tcp_user_timeout(facts),
    ]
}

/// Judges a time that should be set. `off` and `on` say what each means.
fn should_be_set(facts: &Facts, name: &'static str, value: &str, off: &str, on: &str) -> Diagnosis {
    let bound = facts.time(name);
    if bound.is_zero() {
        return Diagnosis::new(name, Level::Advice, format!("off: {off}"))
            .fix(alter_role(facts, name, value));
    }
    Diagnosis::fine(name, format!("{}: {on}", exact(bound)))
}

fn lock_timeout(facts: &Facts) -> Diagnosis {
    let name = "lock_timeout";
    let deadlocks = if facts.time(name) <= facts.time("deadlock_timeout") {
        "; so does a deadlock, which is not found before `deadlock_timeout`"
    } else {
        ""
    };
    should_be_set(
        facts,
        name,
        &best_lock_timeout(facts),
        "a call without `wait` waits for as long as the lock is held",
        &format!(
            "a wait ends after that with 55P03, unless the call has its own `wait`{deadlocks}"
        ),
    )
}

/// The `lock_timeout` that each advice uses, which is shorter than `statement_timeout`.
fn best_lock_timeout(facts: &Facts) -> String {
    let best = match facts.time("statement_timeout") / 2 {
        Duration::ZERO => LOCK_TIMEOUT,
        half => LOCK_TIMEOUT.min(half),
    };
    format!("'{}'", exact(best.max(Duration::from_millis(1))))
}

fn statement_timeout(facts: &Facts) -> Diagnosis {
    let name = "statement_timeout";
    let (bound, lock) = (facts.time(name), facts.time("lock_timeout"));
    if bound.is_zero() {
        return Diagnosis::fine(name, "off: it ends no wait");
    }
    let time = exact(bound);
    if lock.is_zero() || lock >= bound {
        let message = format!(
            "{time}: it ends a wait before `lock_timeout` does, with 57014, as if somebody had cancelled the statement"
        );
        let fix = alter_role(facts, "lock_timeout", &best_lock_timeout(facts));
        return Diagnosis::new(name, Level::Advice, message).fix(fix);
    }
    let message = format!("{time}: longer than `lock_timeout`, which therefore ends a wait first");
    Diagnosis::fine(name, message)
}

fn transaction_timeout(facts: &Facts) -> Diagnosis {
    let name = "transaction_timeout";
    let message = match (facts.setting(name), facts.time(name)) {
        (None, _) => "not available before PostgreSQL 17".to_owned(),
        (_, Duration::ZERO) => "off: a body may take as long as it needs".to_owned(),
        (_, bound) => format!(
            "{}: a body that takes longer loses its session and its lock, with 25P04; so does a migration",
            exact(bound)
        ),
    };
    Diagnosis::fine(name, message)
}

fn idle_session(facts: &Facts) -> Diagnosis {
    let name = "idle_session_timeout";
    let bound = facts.time(name);
    if bound.is_zero() {
        return Diagnosis::fine(name, "off: an idle session keeps its session-level locks");
    }
    let message = format!(
        "{}: a session that sends nothing for that long is terminated, which releases its session-level locks",
        exact(bound)
    );
    Diagnosis::new(name, Level::Advice, message).fix(alter_role(facts, name, "0"))
}

fn isolation(facts: &Facts) -> Diagnosis {
    let name = "default_transaction_isolation";
    let level = facts.setting(name).unwrap_or_default();
    if level == "read committed" {
        let message = "read committed: after a wait the body reads what the holder has committed";
        return Diagnosis::fine(name, message);
    }
    let message = format!(
        "{level}: after a lock is taken by hand inside a transaction, queries read data from before the wait; locked functions set their own level"
    );
    Diagnosis::new(name, Level::Advice, message).fix(alter_role(facts, name, "'read committed'"))
}

fn log_lock_waits(facts: &Facts) -> Diagnosis {
    let name = "log_lock_waits";
    if facts.setting(name) == Some("on") {
        let message = "on: `cargo advisory log` shows each wait longer than `deadlock_timeout`";
        return Diagnosis::fine(name, message);
    }
    let message =
        "off: the log has no long waits, so nobody can find out afterwards who waited for whom";
    Diagnosis::new(name, Level::Advice, message)
        .fix(alter_system(name, "on"))
        .fix(RELOAD)
}

fn deadlock_timeout(facts: &Facts) -> Diagnosis {
    let name = "deadlock_timeout";
    let bound = facts.time(name);
    let time = exact(bound);
    let wrong = if bound < Duration::from_millis(100) {
        "every short wait triggers a search for deadlocks, which slows all sessions"
    } else if bound > Duration::from_secs(10) {
        "two calls that wait for each other do so for that long"
    } else {
        let what = "after that time a deadlock is found, and a wait can be logged";
        return Diagnosis::fine(name, format!("{time}: {what}"));
    };
    Diagnosis::new(name, Level::Advice, format!("{time}: {wrong}"))
        .fix(alter_system(name, "'1s'"))
        .fix(RELOAD)
}

const UNIX_SOCKET: &str = "not needed: this session uses a Unix-domain socket";

fn keepalives(facts: &Facts) -> Diagnosis {
    let name = "keepalives";
    if !facts.is_over_tcp {
        return Diagnosis::fine(name, UNIX_SOCKET);
    }
    let count = u32::try_from(facts.number("tcp_keepalives_count")).unwrap_or(u32::MAX);
    let probes = facts.time("tcp_keepalives_interval").saturating_mul(count);
    let silence = facts.time("tcp_keepalives_idle").saturating_add(probes);
    let time = short(silence);
    if silence <= LONGEST_SILENCE {
        let message = "a client whose machine is gone loses its session, and its locks, after that";
        return Diagnosis::fine(name, format!("{time}: {message}"));
    }
    let message = format!(
        "{time}: a client whose machine is gone keeps its session, and its locks, for that long; for the client's side, write \
         `tcp_user_timeout` into its URL"
    );
    Diagnosis::new(name, Level::Advice, message)
        .fix(alter_role(facts, "tcp_keepalives_idle", "60"))
        .fix(alter_role(facts, "tcp_keepalives_interval", "10"))
        .fix(alter_role(facts, "tcp_keepalives_count", "6"))
}

/// The bound for an answer on its way, while which no keepalives are sent.
fn tcp_user_timeout(facts: &Facts) -> Diagnosis {
    let name = "tcp_user_timeout";
    if !facts.is_over_tcp {
        return Diagnosis::fine(name, UNIX_SOCKET);
    }
    let (bound, time) = (facts.time(name), short(facts.time(name)));
    let message = if bound.is_zero() {
        "off: a client whose network fails while an answer is on its way keeps its session, and its locks, for as long as \
         the system sends the answer again, by the defaults of Linux a quarter of an hour"
            .to_owned()
    } else if bound > LONGEST_SILENCE {
        format!(
            "{time}: a client whose network fails while an answer is on its way keeps its locks for that long"
        )
    } else {
        let message = "a client that does not acknowledge an answer loses its session, and its locks, after that";
        return Diagnosis::fine(name, format!("{time}: {message}"));
    };
    Diagnosis::new(name, Level::Advice, message).fix(alter_role(facts, name, "'60s'"))
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::doctor::facts::Facts;
    use crate::doctor::{Diagnosis, Level};

    type Setting<'s> = (&'s str, &'s str, Option<&'s str>);

    fn found(name: &str, settings: &[Setting]) -> Diagnosis {
        let mut facts = Facts::with(settings);
        facts.is_over_tcp = true;
        let mut findings = judge(&facts).into_iter();
        findings.find(|found| found.name == name).unwrap()
    }

    #[track_caller]
    fn is_judged(name: &str, settings: &[Setting], is_fine: bool, said: &str) {
        let found = found(name, settings);
        let expected = if is_fine { Level::Fine } else { Level::Advice };
        let message = &found.message;
        assert!(found.level == expected, "{settings:?}: {message}");
        assert!(message.contains(said), "{settings:?}: {message}");
    }

    #[test]
    fn each_timeout_is_judged_by_its_bound() {
        for (name, value, is_fine, said) in [
            ("lock_timeout", "0", false, "off: "),
            ("statement_timeout", "0", true, "off: "),
            ("transaction_timeout", "0", true, "off: "),
            ("transaction_timeout", "90000", true, "90s: "),
            ("transaction_timeout", "300000", true, "5min: "),
            ("transaction_timeout", "7200000", true, "2h: "),
            ("idle_session_timeout", "0", true, "off: "),
            ("idle_session_timeout", "3000", false, "3s: "),
            ("deadlock_timeout", "99", false, "every short wait"),
            ("deadlock_timeout", "100", true, "100ms: after"),
            ("deadlock_timeout", "10000", true, "10s: after"),
            ("deadlock_timeout", "10001", false, "10001ms: two calls"),
            ("tcp_user_timeout", "0", false, "off: "),
            ("tcp_user_timeout", "60000", true, "1m00s: "),
            ("tcp_user_timeout", "300001", false, "for that long"),
        ] {
            is_judged(name, &[(name, value, Some("ms"))], is_fine, said);
        }
        is_judged("transaction_timeout", &[], true, "not available");
    }

    #[test]
    fn a_timeout_is_judged_by_those_that_end_the_wait_before_it() {
        let statement = "statement_timeout";
        let ms = |name, value| (name, value, Some("ms"));
        let lock = |value| ms("lock_timeout", value);
        let deadlock = ms("deadlock_timeout", "1000");
        let so_does = "so does a deadlock";
        is_judged("lock_timeout", &[lock("1000"), deadlock], true, so_does);
        let found = found("lock_timeout", &[lock("1001"), deadlock]);
        assert!(!found.message.contains(so_does), "{}", found.message);
        let before = "before `lock_timeout` does";
        let bound = ms(statement, "9");
        is_judged(statement, &[bound], false, before);
        is_judged(statement, &[bound, lock("9")], false, before);
        is_judged(statement, &[bound, lock("8")], true, "9ms: longer than");
    }

    /// A longer one would be advised against. No setting is below a millisecond.
    #[test]
    fn the_advised_lock_timeout_is_below_the_statement_timeout() {
        let ms = |value| [("statement_timeout", value, Some("ms"))];
        for (statement, advised) in [
            ("0", "30s"),
            ("120000", "30s"),
            ("10000", "5s"),
            ("1", "1ms"),
        ] {
            let found = found("lock_timeout", &ms(statement));
            let expected = format!("ALTER ROLE \"\" SET lock_timeout = '{advised}';");
            assert_eq!(found.fix, [expected]);
        }
    }

    #[test]
    fn a_dead_client_is_noticed_within_five_minutes() {
        for (idle, level) in [("240", Level::Fine), ("241", Level::Advice)] {
            let settings = [
                ("tcp_keepalives_idle", idle, Some("s")),
                ("tcp_keepalives_interval", "10", Some("s")),
                ("tcp_keepalives_count", "6", None),
            ];
            let found = found("keepalives", &settings);
            assert!(found.level == level, "{idle}: {}", found.message);
        }
    }
}
