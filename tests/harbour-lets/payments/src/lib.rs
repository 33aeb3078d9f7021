//! Money: accounts, invoices, vouchers, and the payment provider's events.

#![expect(
    deprecated,
    unused_variables,
    reason = "the tests read the lock sites, and no body runs"
)]

pub mod accounts;
pub mod balance;
pub mod deposits;
pub mod idempotency;
pub mod invoices;
pub mod loyalty;
pub mod payouts;
pub mod rates;
pub mod statements;
pub mod vouchers;
pub mod webhooks;
