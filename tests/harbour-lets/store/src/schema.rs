//! The tables as Diesel sees them; `migrations/` makes them.

use diesel::{allow_tables_to_appear_in_same_query, joinable, table};

table! {
    properties (id) {
        id -> Uuid,
        owner_id -> BigInt,
        name -> Text,
    }
}

table! {
    rooms (id) {
        id -> BigInt,
        property_id -> Uuid,
        name -> Text,
        beds -> Integer,
        is_let -> Bool,
    }
}

table! {
    guests (id) {
        id -> Uuid,
        name -> Text,
        email -> Text,
        merged_into -> Nullable<Uuid>,
    }
}

table! {
    email_changes (id) {
        id -> BigInt,
        guest_id -> Uuid,
        new_email -> Text,
        confirmed_at -> Nullable<Timestamptz>,
    }
}

table! {
    bookings (id) {
        id -> Uuid,
        tenant_id -> Uuid,
        room_id -> BigInt,
        guest_id -> Uuid,
        arrives -> Date,
        departs -> Date,
        state -> Text,
        price -> BigInt,
        paid -> BigInt,
    }
}

table! {
    blocks (id) {
        id -> BigInt,
        room_id -> BigInt,
        night -> Date,
        reason -> Text,
    }
}

table! {
    quotes (id) {
        id -> Uuid,
        room_id -> BigInt,
        arrives -> Date,
        departs -> Date,
        price -> BigInt,
        taken_by -> Nullable<Uuid>,
    }
}

table! {
    waiting_list (room_id, night, place) {
        room_id -> BigInt,
        night -> Date,
        place -> Integer,
        guest_id -> Uuid,
    }
}

table! {
    prices (property_id, season) {
        property_id -> Uuid,
        season -> Text,
        night -> BigInt,
        version -> Integer,
    }
}

table! {
    cleanings (room_id, day) {
        room_id -> BigInt,
        day -> Date,
        cleaner_id -> BigInt,
        done -> Bool,
    }
}

table! {
    key_safes (property_id, slot) {
        property_id -> Uuid,
        slot -> Integer,
        code -> Text,
        booking_id -> Nullable<Uuid>,
    }
}

table! {
    reviews (booking_id) {
        booking_id -> Uuid,
        stars -> Integer,
        body -> Text,
    }
}

table! {
    accounts (id) {
        id -> BigInt,
        holder -> Text,
        balance -> BigInt,
        is_closed -> Bool,
    }
}

table! {
    entries (id) {
        id -> BigInt,
        account_id -> BigInt,
        amount -> BigInt,
        reason -> Text,
    }
}

table! {
    invoices (tenant_id, year, number) {
        tenant_id -> Uuid,
        year -> Integer,
        number -> Integer,
        booking_id -> Uuid,
        total -> BigInt,
    }
}

table! {
    vouchers (code) {
        code -> Text,
        amount -> BigInt,
        redeemed_by -> Nullable<Uuid>,
    }
}

table! {
    loyalty (guest_id) {
        guest_id -> Uuid,
        points -> BigInt,
    }
}

table! {
    deposits (booking_id) {
        booking_id -> Uuid,
        amount -> BigInt,
        state -> Text,
    }
}

table! {
    statements (owner_id, month) {
        owner_id -> BigInt,
        month -> Text,
        total -> BigInt,
        paid_out -> Bool,
    }
}

table! {
    webhooks (id) {
        id -> BigInt,
        event_id -> Text,
        kind -> Text,
    }
}

table! {
    idempotency_keys (key) {
        key -> Text,
        answer -> Text,
        expires_at -> Timestamptz,
    }
}

table! {
    exchange_rates (currency) {
        currency -> Text,
        per_mille -> BigInt,
        fetched -> Integer,
    }
}

table! {
    sync_jobs (id) {
        id -> BigInt,
        channel -> Text,
        property_id -> Uuid,
        priority -> Integer,
        created_at -> Timestamptz,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
    }
}

table! {
    sync_checkpoints (matrix_id, chunk_hash) {
        matrix_id -> BigInt,
        chunk_hash -> Text,
        row_count -> Nullable<BigInt>,
        last_synced_at -> Nullable<Timestamptz>,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

table! {
    outbox (id) {
        id -> BigInt,
        address -> Text,
        subject -> Text,
        taken_until -> Nullable<Timestamptz>,
        taken_by -> Nullable<Text>,
        sent_at -> Nullable<Timestamptz>,
    }
}

table! {
    schedules (id) {
        id -> Uuid,
        generated_to -> Date,
    }
}

table! {
    schedule_events (schedule_id, day) {
        schedule_id -> Uuid,
        day -> Date,
    }
}

table! {
    exports (name) {
        name -> Text,
        rows -> BigInt,
        token -> BigInt,
    }
}

table! {
    feeds (channel, property_id) {
        channel -> Text,
        property_id -> Uuid,
        version -> Integer,
    }
}

table! {
    verification_codes (email, code) {
        email -> Text,
        code -> Text,
    }
}

table! {
    settings (tenant_id, name) {
        tenant_id -> Uuid,
        name -> Text,
        value -> Text,
    }
}

table! {
    runs (id) {
        id -> BigInt,
        job -> Text,
    }
}

joinable!(rooms -> properties (property_id));
joinable!(bookings -> rooms (room_id));
joinable!(bookings -> guests (guest_id));
allow_tables_to_appear_in_same_query!(rooms, properties, bookings, guests);
