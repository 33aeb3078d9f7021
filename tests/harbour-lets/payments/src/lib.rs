//! Money: accounts, invoices, vouchers, and what the payment provider tells us.

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
