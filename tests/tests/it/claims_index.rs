//! The printed index of a type of claims has a different name for each definition.

use advisory_runtime::claim::{self, Claim};
use advisory_tests::Database;
use diesel::prelude::*;

/// Names that differ only after the 63 bytes that PostgreSQL keeps of an index's name.
mod schema {
    diesel::table! {
        #[sql_name = "jobs_of_a_tenant_with_a_long_name_that_fills_almost_63_bytes_1"]
        one (id) {
            id -> BigInt,
            priority -> Integer,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
            completed_at -> Nullable<Timestamptz>,
        }
    }
    diesel::table! {
        #[sql_name = "jobs_of_a_tenant_with_a_long_name_that_fills_almost_63_bytes_2"]
        two (id) {
            id -> BigInt,
            priority -> Integer,
            locked_until -> Nullable<Timestamptz>,
            locked_by -> Nullable<Text>,
            completed_at -> Nullable<Timestamptz>,
        }
    }
}

macro_rules! row {
    ($row:ident, $table:path, $($argument:tt)*) => {
        #[derive(Queryable, Selectable, Claim)]
        #[diesel(table_name = $table)]
        #[claim($($argument)*)]
        struct $row {
            id: i64,
        }
    };
}

row!(One, schema::one, order = "priority");
row!(Same, schema::one, order = "priority", ttl = "10m");
row!(Reversed, schema::one, order = "priority desc");
row!(
    Checkpoint,
    schema::one,
    order = "priority",
    completed_at = "none"
);
row!(Two, schema::two, order = "priority");

/// The indexes of these two tables, besides those of the keys.
const INDEXES: &str = "SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid \
     WHERE NOT indisprimary AND relname LIKE 'jobs\\_of%' AND octet_length(relname) <= 63 AND indisvalid";

#[tokio::test]
async fn each_definition_of_a_claim_gets_its_index() {
    let db = Database::create().await;
    for end in 1..=2 {
        db.run(&format!(
            "CREATE TABLE jobs_of_a_tenant_with_a_long_name_that_fills_almost_63_bytes_{end} (id int8 PRIMARY KEY, \
             priority int4, locked_until timestamptz, locked_by text, completed_at timestamptz)"
        ))
        .await;
    }
    let all = [
        claim::indexes::<One>(),
        claim::indexes::<Reversed>(),
        claim::indexes::<Checkpoint>(),
        claim::indexes::<Two>(),
    ];
    for (nth, indexes) in all.iter().enumerate() {
        let [sql] = &indexes[..] else {
            panic!("{indexes:?}")
        };
        // Again, as if several branches had the same migration.
        for _ in 0..2 {
            db.run(sql).await;
            let made = db.count(INDEXES).await;
            assert_eq!(made, i64::try_from(nth).unwrap() + 1, "{sql}");
        }
    }
    assert_eq!(claim::indexes::<Same>(), all[0], "the same definition");
    let rows = (One { id: 1 }, Same { id: 1 }, Reversed { id: 1 });
    assert_eq!(rows.0.id + rows.1.id + rows.2.id, 3);
    let rows = (Checkpoint { id: 1 }, Two { id: 1 });
    assert_eq!(rows.0.id + rows.1.id, 2);
}

/// Every printed migration contains this name: with another one every table would get a second
/// index.
#[test]
fn the_name_of_an_index_never_changes() {
    assert_eq!(
        claim::indexes::<Checkpoint>(),
        [
            "CREATE INDEX IF NOT EXISTS \"jobs_of_a_tenant_with_a_long_name_that_fills_alm_claim_ee26416b\" \
             ON \"jobs_of_a_tenant_with_a_long_name_that_fills_almost_63_bytes_1\" (\"priority\");"
        ]
    );
}
