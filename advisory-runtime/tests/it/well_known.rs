//! The keys of other tools are what those tools compute.
//!
//! The numbers are golden, and were computed without this crate: the CRC-32s by Python's `zlib.crc32`, Java's hash by its definition.
//! A changed number no longer excludes the tool.

use advisory_runtime::well_known::{self, flyway, golang_migrate, rails, sqlx, tools};
use advisory_runtime::{Key, LockKey};

#[test]
fn keys_of_a_databases_name_are_golden() {
    for (name, of_rails, of_sqlx) in [
        ("postgres", 737_815_420_147_457_505, 368_907_709_894_077_238),
        ("app", 6_939_591_962_871_035_475, 3_469_795_979_745_788_610),
        (
            "shop_production",
            5_843_596_595_875_314_990,
            2_921_798_296_514_793_524,
        ),
        (
            "größe",
            3_163_561_066_261_125_285,
            1_581_780_532_360_263_566,
        ),
        ("", 0, 0),
    ] {
        assert_eq!(rails(name), of_rails, "{name}");
        assert_eq!(sqlx(name), of_sqlx, "{name}");
    }
    for (name, number) in [
        ("postgres", 143_310_882),
        ("app", 1_787_120_056),
        ("größe", 3_020_591_722),
        ("/postgres", 3_280_485_947),
        ("/shop", 2_101_699_660),
    ] {
        let key = golang_migrate(name, "public", "schema_migrations");
        assert_eq!(key, number, "{name}");
    }
}

#[test]
fn keys_of_a_history_table_are_golden() {
    for (schema, table, number) in [
        ("public", "flyway_schema_history", 77_433_833_903_597),
        ("app", "flyway_schema_history", 77_431_436_970_681),
        ("größe", "t", 77_430_292_863_406),
    ] {
        assert_eq!(flyway(schema, table), number, "{schema}.{table}");
    }
}

fn names(key: impl LockKey, database: Option<&str>) -> Vec<(&'static str, bool)> {
    let tools = tools(key.key(), database).into_iter();
    tools.map(|tool| (tool.name, tool.is_distinctive)).collect()
}

#[test]
fn a_tool_is_found_by_its_number() {
    let shop = Some("shop");
    for (number, tool) in [
        (well_known::PRISMA, "Prisma Migrate"),
        (well_known::GOOSE, "goose"),
        (well_known::TERN, "tern"),
        (well_known::NODE_PG_MIGRATE, "node-pg-migrate"),
        (rails("shop"), "Rails"),
        (sqlx("shop"), "sqlx"),
        (flyway("public", "flyway_schema_history"), "Flyway"),
    ] {
        assert_eq!(names(number, None), [(tool, true)]);
        assert_eq!(names(number, shop), [(tool, true)]);
    }
    for name in ["shop", "/shop"] {
        let number = golang_migrate(name, "public", "schema_migrations");
        assert_eq!(names(number, shop), [("golang-migrate", true)]);
        assert_eq!(names(number, None), []);
    }
}

#[test]
fn a_small_number_can_be_anybodys() {
    for (number, tools) in [
        (well_known::LEMMY, &["Lemmy"][..]),
        (well_known::GRAPH_NODE, &["graph-node", "Airflow"]),
        (well_known::AIRFLOW, &["graph-node", "Airflow"]),
        (2, &["Airflow"]),
        (3, &[]),
        (well_known::AUTHENTIK, &["authentik"]),
    ] {
        let tools: Vec<_> = tools.iter().map(|tool| (*tool, false)).collect();
        assert_eq!(names(number, Some("shop")), tools, "{number}");
    }
}

#[test]
fn other_numbers_have_no_tool() {
    for number in [-1, i64::MIN, i64::MAX, 42, 72_707_368, rails("shop") + 1] {
        assert_eq!(names(number, Some("shop")), [], "{number}");
    }
    assert_eq!(names((0, 72_707_369), Some("shop")), []);
    assert_eq!(names(Key::IntInt(1, 1), None), []);
}

/// The guide's table has every constant and function, and the numbers beside them.
#[test]
fn the_guides_table_is_the_modules() {
    let page = include_str!("../../docs/well-known-keys.md");
    let module = include_str!("../../src/key/well_known.rs");
    let row = |item: &str| {
        let link = format!("[`{item}`][well_known::{item}]");
        let row = page
            .lines()
            .find(|line| line.starts_with('|') && line.contains(&link));
        row.unwrap_or_else(|| panic!("no row has {item}"))
    };
    for (item, number) in [
        ("PRISMA", well_known::PRISMA),
        ("GOOSE", well_known::GOOSE),
        ("TERN", well_known::TERN),
        ("NODE_PG_MIGRATE", well_known::NODE_PG_MIGRATE),
        ("AUTHENTIK", well_known::AUTHENTIK),
        ("GRAPH_NODE", well_known::GRAPH_NODE),
        ("LEMMY", well_known::LEMMY),
        ("AIRFLOW", well_known::AIRFLOW),
    ] {
        assert!(row(item).contains(&format!("| {number}")), "{item}");
    }
    let constants = module
        .lines()
        .filter(|line| line.starts_with("pub const ") && line.contains(": i64"));
    assert_eq!(constants.count(), 8);
    for function in ["rails", "sqlx", "golang_migrate", "flyway"] {
        row(function);
    }
    // Every row says where its number was read, in which version.
    let sources = page.matches("/blob/").count();
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("https://"));
    assert_eq!(rows.count(), sources);
}
