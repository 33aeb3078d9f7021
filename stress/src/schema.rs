//! The tables of the database: every critical section, every grant of a lease, every write under
//! one, every migration, every change of a job.
//!
//! Ticks, not a clock, order the events: a sequence counts outside of transactions, and a session
//! that draws a tick while it holds a lock draws it between the ticks of the holders before and
//! after. A crash may reset the last numbers of a sequence, so those of each start of the server
//! are above all earlier ones.

use crate::clock;
use advisory_runtime::claim::Schema;

/// How much larger the ticks are after each start of the server. A tick modulo this is how many
/// were drawn.
pub(crate) const START: i64 = 1_000_000_000;

/// The SQL that creates the tables of one run.
pub(crate) fn up() -> String {
    let base = clock::micros() / 1_000;
    format!(
        "{TICK}{}{}{EVENTS}",
        SCHEMA
            .replace("{base}", &base.to_string())
            .replace("{start}", &START.to_string()),
        Schema::of("stress.job").per("tenant").up(),
    )
}

const TICK: &str = "CREATE SCHEMA stress; CREATE SEQUENCE stress.number;";

/// There are no unique constraints, so that violations can happen. A row with `booked` is a
/// booking.
const SCHEMA: &str = "
CREATE FUNCTION stress.tick() RETURNS int8 LANGUAGE sql VOLATILE AS $$
    SELECT pg_catalog.nextval('stress.number')
        + ((extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000)::int8 - {base}) * {start}
$$;

CREATE TABLE stress.section (
    slot int8 NOT NULL,
    op int8 NOT NULL,
    booked bool NOT NULL,
    entered int8 NOT NULL,
    departed int8 NOT NULL DEFAULT stress.tick()
);
CREATE INDEX ON stress.section (slot);

CREATE TABLE stress.written (
    lease int8 NOT NULL,
    token int8 NOT NULL,
    op int8 NOT NULL,
    tick int8 NOT NULL DEFAULT stress.tick()
);

-- Work that must be done once.
CREATE TABLE stress.completed (
    number int8 NOT NULL,
    op int8 NOT NULL
);

-- What migrations have done.
CREATE TABLE stress.migrated (
    version int8 NOT NULL,
    op int8 NOT NULL,
    entered int8 NOT NULL,
    departed int8 NOT NULL DEFAULT stress.tick()
);

CREATE TABLE stress.granted (
    key_hash bytea NOT NULL,
    token int8 NOT NULL,
    was_free bool NOT NULL,
    tick int8 NOT NULL DEFAULT stress.tick()
);

CREATE FUNCTION stress.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO stress.granted VALUES (NEW.key_hash, NEW.token, true);
    ELSIF NEW.grant_id IS DISTINCT FROM OLD.grant_id OR NEW.token IS DISTINCT FROM OLD.token THEN
        INSERT INTO stress.granted
        VALUES (NEW.key_hash, NEW.token, OLD.expires_at <= pg_catalog.clock_timestamp());
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON public.advisory_lease FOR EACH ROW EXECUTE FUNCTION stress.note();

-- Its other columns are those of a queue.
CREATE TABLE stress.job (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant int8 NOT NULL,
    fails int4 NOT NULL,
    label text NOT NULL DEFAULT 'job'
);

-- What works have written in the transaction that completed their job.
CREATE TABLE stress.worked (
    job int8 NOT NULL,
    op int8 NOT NULL
);

-- For programs behind a pooler, which have no prepared statements and so no answers.
CREATE FUNCTION stress.book(of_slot int8, by_op int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    came int8 := stress.tick();
BEGIN
    IF EXISTS (SELECT FROM stress.section WHERE slot = of_slot AND booked) THEN
        RAISE EXCEPTION 'taken %', came;
    END IF;
    INSERT INTO stress.section VALUES (of_slot, by_op, true, came);
END
$$;
";

/// Each change of a job. The clock is the one by which claims expire.
const EVENTS: &str = "
CREATE TABLE stress.job_event (
    job int8 NOT NULL,
    tenant int8 NOT NULL,
    event text NOT NULL,
    until int8,
    at int8 NOT NULL,
    tick int8 NOT NULL DEFAULT stress.tick()
);

CREATE FUNCTION stress.note_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stress.job_event VALUES (NEW.id, NEW.tenant,
        CASE WHEN NEW.completed_at IS DISTINCT FROM OLD.completed_at THEN 'completed'
            WHEN NEW.failed_at IS DISTINCT FROM OLD.failed_at THEN 'failed'
            WHEN NEW.locked_by IS NULL AND NEW.attempts < OLD.attempts THEN 'released'
            WHEN NEW.locked_by IS NULL THEN 'retried'
            WHEN NEW.locked_by IS DISTINCT FROM OLD.locked_by THEN 'claimed'
            ELSE 'renewed' END,
        extract(epoch FROM NEW.locked_until) * 1000000,
        extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000);
    RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER UPDATE ON stress.job FOR EACH ROW EXECUTE FUNCTION stress.note_job();
";
