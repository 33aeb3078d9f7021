//! A tenant's settings: five repositories that differ only in a name, a type and a lock.

use advisory_runtime::Connection;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_domain::TenantId;
use lets_store::schema::settings;
use lets_store::{Error, Refusal, Result};

macro_rules! settings {
    ($($(#[$doc:meta])* $module:ident: $type:ty = $default:expr, $key:literal;)*) => { $(
        $(#[$doc])*
        pub mod $module {
            use super::*;
            use advisory_runtime::advisory_lock;

            pub async fn get<C: Connection>(conn: &mut C, tenant: TenantId) -> Result<$type> {
                let value = super::read(conn, tenant, stringify!($module)).await?;
                value.map_or(Ok($default), |value| super::parse(&value))
            }

            /// Reads, changes and writes a setting of a tenant's.
            #[advisory_lock(key = $key, component = "settings", wait = "2s")]
            pub async fn change<C: Connection>(
                conn: &mut C,
                tenant: TenantId,
                change: impl FnOnce($type) -> $type + Send,
            ) -> Result<$type> {
                let value = change(get(conn, tenant).await?);
                super::write(conn, tenant, stringify!($module), &value.to_string()).await?;
                Ok(value)
            }
        }
    )* };
}

settings! {
    /// Per mille of the price that the town takes.
    city_tax: i64 = 50, "setting:city-tax:<tenant: uuid>";
    /// Days before the arrival up to which cancelling is free.
    free_cancellation: i64 = 14, "setting:free-cancellation:<tenant: uuid>";
    /// Per cent of the price that a guest deposits.
    deposit: i64 = 20, "setting:deposit:<tenant: uuid>";
    /// Points a night.
    loyalty_rate: i64 = 10, "setting:loyalty-rate:<tenant: uuid>";
    /// Whether guests are called by their first name.
    is_informal: bool = false, "setting:is-informal:<tenant: uuid>";
}

async fn read<C: Connection>(conn: &mut C, tenant: TenantId, name: &str) -> Result<Option<String>> {
    let found = settings::table.find((tenant.0, name));
    let value = found.select(settings::value).first(conn).await;
    Ok(value.optional()?)
}

async fn write<C: Connection>(
    conn: &mut C,
    tenant: TenantId,
    name: &str,
    value: &str,
) -> Result<()> {
    diesel::insert_into(settings::table)
        .values((
            settings::tenant_id.eq(tenant.0),
            settings::name.eq(name),
            settings::value.eq(value),
        ))
        .on_conflict((settings::tenant_id, settings::name))
        .do_update()
        .set(settings::value.eq(value))
        .execute(conn)
        .await?;
    Ok(())
}

fn parse<T: std::str::FromStr>(value: &str) -> Result<T> {
    value.parse().map_err(|_| Error::Refused(Refusal::Invalid))
}
