//! A tenant's settings: five functions that differ only in a name, a type and a lock.

macro_rules! settings {
    ($($(#[$doc:meta])* $module:ident: $type:ty, $key:literal;)*) => { $(
        $(#[$doc])*
        pub mod $module {
            use advisory_runtime::{Connection, advisory_lock};
            use lets_domain::TenantId;
            use lets_store::{Error, Result};

            /// Reads, changes and writes a setting of a tenant's.
            #[advisory_lock(key = $key, component = "settings", wait = "2s")]
            pub async fn change<C: Connection>(conn: &mut C, tenant: TenantId) -> Result<$type> {
                Err(Error::Refused)
            }
        }
    )* };
}

settings! {
    /// Per mille of the price that the town takes.
    city_tax: i64, "setting:city-tax:<tenant: uuid>";
    /// Days before the arrival up to which cancelling is free.
    free_cancellation: i64, "setting:free-cancellation:<tenant: uuid>";
    /// Per cent of the price that a guest deposits.
    deposit: i64, "setting:deposit:<tenant: uuid>";
    /// Points a night.
    loyalty_rate: i64, "setting:loyalty-rate:<tenant: uuid>";
    /// Whether guests are called by their first name.
    is_informal: bool, "setting:is-informal:<tenant: uuid>";
}
