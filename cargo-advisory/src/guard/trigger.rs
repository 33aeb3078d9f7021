//! A guard as a migration: the trigger, its function, and the statements that drop them.

use std::fmt::Write;

use advisory_pattern::Derivation;
use advisory_runtime::__private::qualify;
use advisory_runtime::Key;

use super::key_sql::{KeySql, types};
use super::{Guard, halves};
use crate::database::{identifier, literal};
use crate::failure::Result;
use crate::text::{joined, one_line};

/// PostgreSQL truncates longer names.
const LONGEST_NAME: usize = 63;

const PREFIX: &str = "advisory_require";

/// The tables below a guarded one, as plain SQL. Each line is qualified on its own, to keep the
/// layout.
const BELOW: &str = "        \
WITH RECURSIVE family (oid) AS (
            SELECT {table}::oid
            UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i
                JOIN family AS f ON i.inhparent = f.oid
        )
        SELECT n.nspname, c.relname{columns}
        FROM family AS f JOIN pg_catalog.pg_class AS c ON c.oid = f.oid
            JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid <> {table} AND {which}
";

impl Guard {
    pub(crate) fn up(&self) -> Result<String> {
        let (body, table) = (self.body()?, self.table.sql());
        let function = self.table.within(&self.function_name());
        let trigger = identifier(&name(&[PREFIX, &self.lock]));
        let is_fixed = self.is_fixed();
        let below = self.below();
        let mut text = format!(
            "-- Refuses writes to {table} by a session that does not hold the advisory lock {name} in exclusive mode.\n\
             -- Key: {key} by {derivation}. Written by `cargo advisory migration require`; write it again when the lock's key changes.\n",
            name = literal(&self.lock),
            key = one_line(&advisory_pattern::encode_key(Some(&self.key))),
            derivation = self.derivation.name(),
        );
        if is_fixed {
            text.push_str("-- The key is the same for every row, so the trigger runs once a statement; for rows of partitions see the end.\n\n");
        } else {
            text.push_str("-- The trigger runs for each row, after the write, because only then a row has its final values.\n\n");
            self.write_type_check(&mut text);
        }
        let (when, each) = if is_fixed {
            ("BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE", "STATEMENT")
        } else {
            ("AFTER INSERT OR UPDATE OR DELETE", "ROW")
        };
        let _ = write!(
            text,
            "-- Runs with the writer's rights, and needs none: every role may read `pg_lock_status`. It calls nothing outside of pg_catalog.\n\
             CREATE FUNCTION {function}() RETURNS trigger\n    \
             LANGUAGE plpgsql VOLATILE SECURITY INVOKER\n    \
             SET search_path = pg_catalog, pg_temp\n    \
             SET TimeZone = 'UTC'\n    \
             SET DateStyle = 'ISO'\n\
             AS $advisory$\n{body}$advisory$;\n\n\
             CREATE TRIGGER {trigger}\n    \
             {when} ON {table}\n    \
             FOR EACH {each} EXECUTE FUNCTION {function}();\n\n{below}"
        );
        Ok(text)
    }

    /// SQL for the tables below this one, for which its trigger does not run. PostgreSQL copies
    /// only a trigger for rows to the partitions of its table, including later ones.
    fn below(&self) -> String {
        let (table, function) = (self.table.sql(), self.table.within(&self.function_name()));
        let trigger = identifier(&name(&[PREFIX, &self.lock]));
        let regclass = format!("{}::pg_catalog.regclass", literal(&table));
        let (comment, of_rows, when, columns, which) = if self.is_fixed() {
            let rows = identifier(&name(&[PREFIX, &self.lock, "rows"]));
            let is_table = qualify("partrelid = {table}").replace("{table}", &regclass);
            (
                "-- A write to a partition or to an inheritance child does not fire its parent's trigger for statements. The trigger for rows\n\
                 -- binds partitions, later ones too; `TRUNCATE` of a partition and writes to children need a trigger on each table.\n",
                format!(
                    "    IF EXISTS (SELECT FROM pg_catalog.pg_partitioned_table\n            \
                     WHERE {is_table}) THEN\n        \
                     CREATE TRIGGER {rows}\n            \
                     AFTER INSERT OR UPDATE OR DELETE ON {table}\n            \
                     FOR EACH ROW EXECUTE FUNCTION {function}();\n    \
                     END IF;\n"
                ),
                "CASE WHEN below.is_partition THEN 'BEFORE TRUNCATE'\n                \
                 WHEN below.is_foreign THEN 'BEFORE INSERT OR UPDATE OR DELETE'\n                \
                 ELSE 'BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE' END",
                ", c.relispartition AS is_partition, c.relkind = 'f' AS is_foreign",
                "NOT (c.relispartition AND c.relkind = 'f')",
            )
        } else {
            (
                "-- Partitions have the trigger, later ones too; an inheritance child needs its own.\n",
                String::new(),
                "'AFTER INSERT OR UPDATE OR DELETE'",
                "",
                "NOT c.relispartition",
            )
        };
        let each = if self.is_fixed() { "STATEMENT" } else { "ROW" };
        let statement = literal(&format!(
            "CREATE TRIGGER {} %s ON %I.%I FOR EACH {each} EXECUTE FUNCTION {}()",
            trigger.replace('%', "%%"),
            function.replace('%', "%%")
        ));
        let below = BELOW.replace("{columns}", columns);
        let below = below.replace("{which}", which);
        let below = joined(below.lines().map(qualified_line), "\n");
        let below = below.replace("{table}", &regclass);
        format!(
            "{comment}DO $advisory$\n\
             DECLARE\n    below record;\n\
             BEGIN\n{of_rows}    \
             FOR below IN\n{below}\n    \
             LOOP\n        \
             EXECUTE pg_catalog.format(\n            {statement},\n            \
             {when},\n            below.nspname, below.relname);\n    \
             END LOOP;\n\
             END\n\
             $advisory$;\n"
        )
    }

    /// The migration's `down.sql`. It also drops the triggers, which depend on the function.
    pub(crate) fn down(&self) -> String {
        let function = self.table.within(&self.function_name());
        format!("DROP FUNCTION {function}() CASCADE;\n")
    }

    /// The source of the trigger's function, as in `pg_proc.prosrc` after its first line break.
    pub(crate) fn body(&self) -> Result<String> {
        let marks = self.marks();
        let lock = literal(&self.lock);
        Ok(match self.key_sql()? {
            KeySql::Fixed(key) => fixed(&marks, &lock, key),
            KeySql::OfRow(first, key) => of_row(&marks, &lock, &key, first),
        })
    }

    /// SQL that fails if the type of a column renders differently from the lock's shape. A domain
    /// does not count as its base type.
    fn write_type_check(&self, text: &mut String) {
        text.push_str("DO $advisory$\nBEGIN\n");
        let table = self.table.sql();
        for placeholder in self.key.text().placeholders() {
            let (name, value) = (placeholder.name(), self.column(placeholder));
            let types = types(placeholder);
            let differs = types.join(", ");
            let differs = qualify(&format!("<> ALL ('{{{differs}}}'::regtype[])"));
            let message = literal(&format!(
                "the column of the placeholder <{name}> has the type %, and the key needs {}",
                types.join(" or ")
            ));
            let hint = literal(&format!(
                "Write the migration with --column \"{name}=…::{}\".",
                types[0]
            ));
            let found = format!(
                "(SELECT pg_catalog.pg_typeof({value}) FROM (SELECT (NULL::{table}).*) AS written)"
            );
            let _ = write!(
                text,
                "    IF {found}\n        {differs} THEN\n        \
                 RAISE EXCEPTION {message},\n            {found}\n            \
                 USING ERRCODE = '42804', HINT = {hint};\n    END IF;\n"
            );
        }
        text.push_str("END\n$advisory$;\n\n");
    }

    fn function_name(&self) -> String {
        name(&[PREFIX, &self.table.name, &self.lock])
    }
}

fn qualified_line(line: &str) -> String {
    let indent = &line[..line.len() - line.trim_start().len()];
    format!("{indent}{}", qualify(line))
}

/// Joins words to a name. A name that is too long is shortened and ends with a hash of the whole.
fn name(words: &[&str]) -> String {
    let whole = words.join("_");
    let letters = whole.to_ascii_lowercase();
    let words = letters.split(|c: char| !c.is_ascii_alphanumeric());
    let name = joined(words.filter(|word| !word.is_empty()), "_");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let number = Derivation::Sha256.key(&whole).cast_unsigned() >> 32;
    format!("{}_{number:08x}", &name[..LONGEST_NAME - 9])
}

/// A query for one lock of this session. The migration of `advisory_holds` explains why it looks
/// like this.
fn holds(high: &str, low: &str, space: u8, indent: &str) -> String {
    format!(
        "{indent}SELECT FROM (SELECT pg_lock_status() AS held OFFSET 0) AS locks\n\
         {indent}WHERE (held).objid = {low} AND (held).classid = {high} AND (held).pid = pg_backend_pid()\n\
         {indent}    AND (held).objsubid = {space} AND (held).locktype = 'advisory' AND (held).mode = 'ExclusiveLock' AND (held).granted\n"
    )
}

fn refusal(lock: &str, indent: &str) -> String {
    format!(
        "{indent}RAISE EXCEPTION 'this session does not hold the advisory lock \"%\", which guards the table \"%\"', {lock}, TG_TABLE_NAME USING\n\
         {indent}    ERRCODE = '55000', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,\n\
         {indent}    HINT = 'Take the lock before this statement, in the same session and in exclusive mode.';\n"
    )
}

fn fixed(marks: &str, lock: &str, key: Key) -> String {
    let (high, low, space) = halves(key);
    let [high, low] = [high, low].map(|half| format!("'{half}'::oid"));
    let holds = holds(&high, &low, space, "        ");
    let refusal = refusal(lock, "        ");
    format!(
        "{marks}BEGIN\n    IF NOT EXISTS (\n{holds}    ) THEN\n{refusal}    END IF;\n    RETURN NULL;\nEND\n"
    )
}

/// The body for a key that depends on the row. With `first`, the key is the second half of a pair.
fn of_row(marks: &str, lock: &str, key: &str, first: Option<i32>) -> String {
    let space = if first.is_some() { 2 } else { 1 };
    let high = match first {
        Some(first) => format!("{}::oid", first.cast_unsigned()),
        None => "((key >> 32) & 4294967295)::oid".to_owned(),
    };
    let holds = holds("high", "low", space, "            ");
    let refusal = refusal(lock, "            ");
    format!(
        "{marks}#variable_conflict use_column\n\
         DECLARE\n    \
             new_key int8;\n    old_key int8;\n    key int8;\n    high oid;\n    low oid;\n\
         BEGIN\n    \
             IF TG_OP <> 'DELETE' THEN\n        \
                 SELECT {key}\n            INTO new_key FROM (SELECT NEW.*) AS written;\n        \
                 IF new_key IS NULL THEN\n            \
                     RAISE EXCEPTION 'a column of the key of the advisory lock \"%\" is NULL', {lock} USING\n                \
                     ERRCODE = '23502', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;\n        \
                 END IF;\n    \
             END IF;\n    \
             IF TG_OP <> 'INSERT' THEN\n        \
                 SELECT {key}\n            INTO old_key FROM (SELECT OLD.*) AS written;\n    \
             END IF;\n    \
             -- A row with NULL in its key, from before the guard, has no lock: it can be deleted, and given a key.\n    \
             FOREACH key IN ARRAY ARRAY[new_key, NULLIF(old_key, new_key)] LOOP\n        \
                 CONTINUE WHEN key IS NULL;\n        \
                 high := {high};\n        \
                 low := (key & 4294967295)::oid;\n        \
                 IF NOT EXISTS (\n{holds}        ) THEN\n{refusal}        END IF;\n    \
             END LOOP;\n    \
             RETURN NULL;\n\
         END\n"
    )
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_NAME, name};

    /// The server would cut a longer name, and two locks could get one name.
    #[test]
    fn a_long_name_is_shortened_to_one_of_its_own() {
        assert_eq!(name(&["require", "Room-night"]), "require_room_night");
        let long = "lock".repeat(20);
        let [one, other] = ["a", "b"].map(|end| name(&["require", &long, end]));
        assert_ne!(one, other);
        assert_eq!([one.len(), other.len()], [LONGEST_NAME; 2]);
    }
}
