cat > tests/it.rs <<'X'
//! The tests by behaviour that compile with every version of the ranges: those that do not use `async |conn|`, which diesel-async's
//! own transactions take since 0.9.
#![allow(clippy::unwrap_used, reason = "a helper of a test that cannot go on fails the test")]
#![allow(clippy::large_futures, reason = "several locked calls and their observers in one test")]

X
for m in blocking blocking_commit blocking_hold blocking_isolation blocking_nesting blocking_panics blocking_queue blocking_session blocking_waits bookings cancel claims claims_plan connections drops errors every_poll every_poll_rows exclusion holding hygiene isolation keys lease lease_attribute lease_busy lease_held lease_locked_row lock_table monitor nesting operators pooler release_form runtime_gone session session_counts several shared stopped testing trail waits; do printf '#[path = "../../tests/it/%s.rs"]\nmod %s;\n' $m $m; done >> tests/it.rs
