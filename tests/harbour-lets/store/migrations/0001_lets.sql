-- No exclusion constraint keeps two stays apart here, though one could: the tests of this application show what the locks do.
CREATE TABLE properties (
    id uuid PRIMARY KEY,
    owner_id int8 NOT NULL,
    name text NOT NULL
);

CREATE TABLE rooms (
    id int8 PRIMARY KEY,
    property_id uuid NOT NULL REFERENCES properties,
    name text NOT NULL,
    beds int4 NOT NULL,
    is_let bool NOT NULL DEFAULT true
);

CREATE TABLE guests (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    email text NOT NULL,
    merged_into uuid REFERENCES guests
);

CREATE TABLE email_changes (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    guest_id uuid NOT NULL REFERENCES guests,
    new_email text NOT NULL,
    confirmed_at timestamptz
);

CREATE TABLE bookings (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL,
    room_id int8 NOT NULL REFERENCES rooms,
    guest_id uuid NOT NULL REFERENCES guests,
    arrives date NOT NULL,
    departs date NOT NULL,
    state text NOT NULL,
    price int8 NOT NULL,
    paid int8 NOT NULL DEFAULT 0
);

CREATE TABLE blocks (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    room_id int8 NOT NULL REFERENCES rooms,
    night date NOT NULL,
    reason text NOT NULL
);

CREATE TABLE quotes (
    id uuid PRIMARY KEY,
    room_id int8 NOT NULL REFERENCES rooms,
    arrives date NOT NULL,
    departs date NOT NULL,
    price int8 NOT NULL,
    taken_by uuid
);

CREATE TABLE waiting_list (
    room_id int8 NOT NULL REFERENCES rooms,
    night date NOT NULL,
    place int4 NOT NULL,
    guest_id uuid NOT NULL REFERENCES guests,
    PRIMARY KEY (room_id, night, place)
);

CREATE TABLE prices (
    property_id uuid NOT NULL REFERENCES properties,
    season text NOT NULL,
    night int8 NOT NULL,
    version int4 NOT NULL,
    PRIMARY KEY (property_id, season)
);

CREATE TABLE cleanings (
    room_id int8 NOT NULL REFERENCES rooms,
    day date NOT NULL,
    cleaner_id int8 NOT NULL,
    done bool NOT NULL DEFAULT false,
    PRIMARY KEY (room_id, day)
);

CREATE TABLE key_safes (
    property_id uuid NOT NULL REFERENCES properties,
    slot int4 NOT NULL,
    code text NOT NULL,
    booking_id uuid,
    PRIMARY KEY (property_id, slot)
);

CREATE TABLE reviews (
    booking_id uuid PRIMARY KEY,
    stars int4 NOT NULL,
    body text NOT NULL
);

CREATE TABLE accounts (
    id int8 PRIMARY KEY,
    holder text NOT NULL,
    balance int8 NOT NULL DEFAULT 0,
    is_closed bool NOT NULL DEFAULT false
);

CREATE TABLE entries (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id int8 NOT NULL REFERENCES accounts,
    amount int8 NOT NULL,
    reason text NOT NULL
);

CREATE TABLE invoices (
    tenant_id uuid NOT NULL,
    year int4 NOT NULL,
    number int4 NOT NULL,
    booking_id uuid NOT NULL,
    total int8 NOT NULL,
    PRIMARY KEY (tenant_id, year, number)
);

CREATE TABLE vouchers (
    code text PRIMARY KEY,
    amount int8 NOT NULL,
    redeemed_by uuid
);

CREATE TABLE loyalty (
    guest_id uuid PRIMARY KEY REFERENCES guests,
    points int8 NOT NULL
);

CREATE TABLE deposits (
    booking_id uuid PRIMARY KEY,
    amount int8 NOT NULL,
    state text NOT NULL
);

CREATE TABLE statements (
    owner_id int8 NOT NULL,
    month text NOT NULL,
    total int8 NOT NULL,
    paid_out bool NOT NULL DEFAULT false,
    PRIMARY KEY (owner_id, month)
);

CREATE TABLE webhooks (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id text NOT NULL,
    kind text NOT NULL
);

CREATE TABLE idempotency_keys (
    key text PRIMARY KEY,
    answer text NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE exchange_rates (
    currency text PRIMARY KEY,
    per_mille int8 NOT NULL,
    fetched int4 NOT NULL
);

CREATE TABLE sync_jobs (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel text NOT NULL,
    property_id uuid NOT NULL,
    priority int4 NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    locked_until timestamptz,
    locked_by text,
    completed_at timestamptz,
    failed_at timestamptz,
    error_message text
);

CREATE INDEX sync_jobs_next ON sync_jobs (priority DESC, created_at) WHERE completed_at IS NULL AND failed_at IS NULL;

CREATE TABLE sync_checkpoints (
    matrix_id int8 NOT NULL,
    chunk_hash text NOT NULL,
    row_count int8,
    last_synced_at timestamptz,
    locked_until timestamptz,
    locked_by text,
    PRIMARY KEY (matrix_id, chunk_hash)
);

CREATE TABLE outbox (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    address text NOT NULL,
    subject text NOT NULL,
    taken_until timestamptz,
    taken_by text,
    sent_at timestamptz
);

CREATE TABLE schedules (
    id uuid PRIMARY KEY,
    generated_to date NOT NULL
);

CREATE TABLE schedule_events (
    schedule_id uuid NOT NULL REFERENCES schedules,
    day date NOT NULL
);

CREATE TABLE exports (
    name text PRIMARY KEY,
    rows int8 NOT NULL,
    token int8 NOT NULL
);

CREATE TABLE feeds (
    channel text NOT NULL,
    property_id uuid NOT NULL,
    version int4 NOT NULL,
    PRIMARY KEY (channel, property_id)
);

CREATE TABLE verification_codes (
    email text NOT NULL,
    code text NOT NULL
);

CREATE TABLE settings (
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

CREATE TABLE runs (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job text NOT NULL
);
