//! The columns, indexes and triggers that claims need.

use super::limit::indexes_of;
use super::{literal, only, quoted};

/// The columns of `#[claim(run_at, attempts)]`, with their types in SQL.
const COLUMNS: [(&str, &str); 7] = [
    ("run_at", "timestamptz NOT NULL DEFAULT now()"),
    ("attempts", "integer NOT NULL DEFAULT 0"),
    ("locked_until", "timestamptz"),
    ("locked_by", "text"),
    ("completed_at", "timestamptz"),
    ("failed_at", "timestamptz"),
    ("error_message", "text"),
];

/// Notifies with the oid of the table, or of its root if the table is a partition: a trigger for
/// each row runs on the partition.
const NOTIFY: &str = "\
CREATE OR REPLACE FUNCTION advisory_claim_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path TO pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('advisory_claim', COALESCE(pg_partition_root(TG_RELID)::oid, TG_RELID)::text);
    RETURN NULL;
END $$;
";

pub(in crate::claim) fn add_columns(table: &str) -> String {
    let columns =
        COLUMNS.map(|(name, sql_type)| format!("    ADD COLUMN IF NOT EXISTS {name} {sql_type}"));
    format!("ALTER TABLE {table}\n{};\n", columns.join(",\n"))
}

pub(in crate::claim) fn drop_columns(table: &str) -> String {
    let columns = COLUMNS.map(|(name, _)| format!("    DROP COLUMN IF EXISTS {name}"));
    format!("ALTER TABLE {table}\n{};\n", columns.join(",\n"))
}

/// Returns the definitions of the indexes.
pub(in crate::claim) fn indexes(order: &[(String, &str)], per: Option<&str>) -> Vec<String> {
    let order: Vec<_> = order
        .iter()
        .map(|(column, direction)| quoted(column) + direction)
        .collect();
    let order = order.join(", ");
    let pending = ["completed_at", "failed_at"].map(|column| format!("{} IS NULL", quoted(column)));
    let mut indexes = vec![format!("({order}){}", only(&pending))];
    if let Some(per) = per {
        indexes.extend(indexes_of(per, &order, pending.into(), "locked_by"));
    }
    indexes
}

/// Returns the triggers that wake workers up, for new rows and for rows that can be claimed again.
/// With a limit for each value, they also run at the end of any claim, which makes room for
/// another.
pub(in crate::claim) fn create_triggers(table: &str, has_limit: bool) -> String {
    let open = if has_limit {
        ""
    } else {
        "\n        AND NEW.completed_at IS NULL AND NEW.failed_at IS NULL"
    };
    let deleted = if has_limit {
        format!(
            "CREATE OR REPLACE TRIGGER advisory_claim_deleted AFTER DELETE ON {table}\n    \
             FOR EACH ROW WHEN (OLD.locked_by IS NOT NULL) EXECUTE FUNCTION advisory_claim_notify();\n"
        )
    } else {
        String::new()
    };
    format!(
        "{NOTIFY}\
         DO $$ BEGIN -- A partition runs the triggers of its parent for rows only.\n    \
         EXECUTE format('CREATE OR REPLACE TRIGGER advisory_claim_inserted AFTER INSERT ON %s\n        \
         FOR EACH %s EXECUTE FUNCTION advisory_claim_notify()', {name}::regclass,\n        \
         CASE WHEN (SELECT relkind FROM pg_class WHERE oid = {name}::regclass) = 'p' THEN 'ROW' ELSE 'STATEMENT' END);\n\
         END $$;\n\
         CREATE OR REPLACE TRIGGER advisory_claim_released AFTER UPDATE OF locked_by ON {table}\n    \
         FOR EACH ROW WHEN (OLD.locked_by IS NOT NULL AND NEW.locked_by IS NULL{open})\n    \
         EXECUTE FUNCTION advisory_claim_notify();\n{deleted}",
        name = literal(table)
    )
}

pub(in crate::claim) fn drop_triggers(table: &str) -> String {
    format!(
        "DROP TRIGGER IF EXISTS advisory_claim_inserted ON {table};\n\
         DROP TRIGGER IF EXISTS advisory_claim_released ON {table};\n\
         DROP TRIGGER IF EXISTS advisory_claim_deleted ON {table};\n"
    )
}
