//! Everything that is deployed, in one program.

pub use lets_admin as admin;
pub use lets_bookings as bookings;
pub use lets_payments as payments;
pub use lets_store as store;
pub use lets_workers as workers;
