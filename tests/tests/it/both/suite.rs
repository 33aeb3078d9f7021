//! The tests of both drivers, which take their names from the module around this one.

mod cancelled;
mod commit;
mod commit_cancelled;
mod commit_texts;
mod exclusion;
mod foreign_transaction;
mod hold;
mod interrupted;
mod isolation;
mod lost_waits;
mod mid_transaction;
mod nesting;
mod polls;
mod self_deadlock;
mod server_errors;
mod session;
mod session_bodies;
mod shared;
mod test_transactions;
mod waits;
