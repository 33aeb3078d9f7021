//! Money: accounts, invoices, vouchers, and the payment provider's events.

pub mod accounts;
pub mod balance;
pub mod deposits;
pub mod idempotency;
pub mod invoices;
pub mod loyalty;
pub mod payouts;
pub mod provider;
pub mod rates;
pub mod statements;
pub mod vouchers;
pub mod webhooks;
