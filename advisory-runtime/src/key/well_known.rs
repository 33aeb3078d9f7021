//! The keys that well-known tools lock, to exclude a tool on purpose or to avoid its key.
//!
//! Most of them lock while they migrate a database. A Diesel migration under such a key and the
//! tool wait for each other:
//!
//! ```
//! use advisory_runtime::{Key, LockKey, well_known};
//!
//! assert_eq!(well_known::PRISMA.key(), Key::BigInt(72_707_369));
//! assert_eq!(well_known::sqlx("postgres").key(), Key::BigInt(368_907_709_894_077_238));
//! ```
//!
//! Each is an `i64`, so it can be the key of a [`Request`](crate::Request) and of the attribute:
//! `key = well_known::PRISMA`. The sources are on the guide's page
//! [`well_known_keys`](crate::guide::well_known_keys). A tool can change its number with any
//! release.

use super::Key;

/// Prisma Migrate.
pub const PRISMA: i64 = 72_707_369;
/// goose, with its session locker: the CRC-32 of `goose`.
pub const GOOSE: i64 = 4_097_083_626;
/// tern.
pub const TERN: i64 = 9_628_173_550_095_224;
/// node-pg-migrate, unless it is given a `lockValue`.
pub const NODE_PG_MIGRATE: i64 = 7_241_865_325_823_964;
/// authentik's migrations.
pub const AUTHENTIK: i64 = 1_000;
/// graph-node's migrations.
pub const GRAPH_NODE: i64 = 1;
/// Lemmy's migrations.
pub const LEMMY: i64 = 0;
/// Airflow's migrations.
pub const AIRFLOW: i64 = 1;

const RAILS_SALT: i64 = 2_053_462_845;
const SQLX_SALT: i64 = 0x3d32_ad9e;
const GOLANG_MIGRATE_SALT: u32 = 1_486_364_155;
/// `Flyway` as bytes.
const FLYWAY_BASE: i64 = 0x466c_7977_6179;

/// Active Record's migrations (Rails) of a database with this name.
#[must_use]
pub const fn rails(database: &str) -> i64 {
    RAILS_SALT * crc32(&[database.as_bytes()]) as i64
}

/// sqlx's migrations of a database with this name.
#[must_use]
pub const fn sqlx(database: &str) -> i64 {
    SQLX_SALT * crc32(&[database.as_bytes()]) as i64
}

/// golang-migrate's migrations of a database with this name, recorded in this table: `"public"` and
/// `"schema_migrations"` unless configured otherwise. If golang-migrate connects by a URL, as its
/// command does, it puts a slash in front of the name: `"/shop"`.
#[must_use]
pub const fn golang_migrate(database: &str, schema: &str, table: &str) -> i64 {
    let parts = [
        schema.as_bytes(),
        &[0],
        table.as_bytes(),
        &[0],
        database.as_bytes(),
    ];
    crc32(&parts).wrapping_mul(GOLANG_MIGRATE_SALT) as i64
}

/// Flyway's migrations that are recorded in this table: `"public"` and `"flyway_schema_history"`
/// unless configured otherwise.
#[must_use]
pub fn flyway(schema: &str, table: &str) -> i64 {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let name = format!("{}.{}", quoted(schema), quoted(table));
    // As `String.hashCode` of Java.
    let hash = name.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(unit.into())
    });
    FLYWAY_BASE + i64::from(hash)
}

/// A tool that locks a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tool {
    /// Its name, such as `Prisma Migrate`.
    pub name: &'static str,
    /// True if other programs are unlikely to use the number, unlike a number such as 1.
    pub is_distinctive: bool,
}

/// Returns the tools that lock this key in a database of this name. Without the name,
/// golang-migrate is not found. No tool locks keys of the `(int, int)` key space.
#[must_use]
pub fn tools(key: Key, database: Option<&str>) -> Vec<Tool> {
    let Key::BigInt(number) = key else {
        return Vec::new();
    };
    let is_flyway = number
        .checked_sub(FLYWAY_BASE)
        .is_some_and(|hash| i32::try_from(hash).is_ok());
    let is_migrate = database.is_some_and(|name| {
        let migrate = |name: &str| golang_migrate(name, "public", "schema_migrations");
        number == migrate(name) || number == migrate(&format!("/{name}"))
    });
    let known = [
        (number == PRISMA, "Prisma Migrate", true),
        (number == GOOSE, "goose", true),
        (number == TERN, "tern", true),
        (number == NODE_PG_MIGRATE, "node-pg-migrate", true),
        (is_product(number, RAILS_SALT), "Rails", true),
        (is_product(number, SQLX_SALT), "sqlx", true),
        (is_flyway, "Flyway", true),
        (is_migrate, "golang-migrate", true),
        (number == LEMMY, "Lemmy", false),
        (number == GRAPH_NODE, "graph-node", false),
        ((AIRFLOW..=2).contains(&number), "Airflow", false),
        (number == AUTHENTIK, "authentik", false),
    ];
    let found = known.into_iter().filter(|(is_it, ..)| *is_it);
    let tool = |(_, name, is_distinctive)| Tool {
        name,
        is_distinctive,
    };
    found.map(tool).collect()
}

/// Returns whether the number is this factor times a CRC-32.
fn is_product(number: i64, factor: i64) -> bool {
    number > 0 && number % factor == 0 && u32::try_from(number / factor).is_ok()
}

/// The CRC-32 of zlib, over the parts one after the other.
const fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    let mut part = 0;
    while part < parts.len() {
        let mut at = 0;
        while at < parts[part].len() {
            crc ^= parts[part][at] as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
                bit += 1;
            }
            at += 1;
        }
        part += 1;
    }
    !crc
}
