//! Once more without the checks of debug builds, as in a release build: the tests of what those
//! checks look at, in a process where they are switched off. Tests start in the order of their
//! names, and this one, which takes longest, should start early.

use advisory_tests::futures::spawn_blocking;
use advisory_tests::{DEBUG_CHECKS, debug_checks_are_on, share_template};
use std::process::{Command, Output};

const MODULES: &str = "
    blocking:: blocking_hold:: blocking_panics:: blocking_session:: both:: cancel::
    closed_connection:: cost:: drops:: every_poll:: every_poll_pools:: hold::
    hold_nested:: hold_settings:: many_keys::thousands_of_session mid_transaction:: nesting::
    order_leases::a_task_that_waits round_trips:: runtime_idle:: search_path::
    self_deadlock:: session:: task_deadlock:: test_transactions:: wait_ends::";

/// Among them what takes long and does nothing that those checks look at.
const SKIPPED: &str = "
    claims_ suite::cancelled suite::lost_waits suite::commit_cancelled
    isolation::many_keys isolation::one_key";

async fn again(more: &[&str]) -> Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(MODULES.split_whitespace()).args(more);
    for skipped in SKIPPED.split_whitespace() {
        child.args(["--skip", skipped]);
    }
    child.env(DEBUG_CHECKS, "off");
    let run = move || {
        share_template(&mut child);
        child.output().unwrap()
    };
    spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn the_promises_hold_without_the_checks_of_debug_builds() {
    if !debug_checks_are_on() {
        return;
    }
    let list = again(&["--list", "--format", "terse"]).await;
    let list = String::from_utf8_lossy(&list.stdout);
    let tests = list.lines().filter(|line| line.ends_with(": test")).count();
    assert!(tests > 200, "{list}");
    for module in MODULES.split_whitespace() {
        assert!(
            list.lines().any(|line| line.starts_with(module)),
            "{module}"
        );
    }
    let ran = again(&["--test-threads", "4"]).await;
    let said = String::from_utf8_lossy(&ran.stdout);
    let passed = format!("test result: ok. {tests} passed");
    assert!(ran.status.success() && said.contains(&passed), "{said}");
}
