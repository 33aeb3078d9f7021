#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;

macro_rules! locked {
    ($($name:ident: $args:tt)*) => { $(
        locked!(@ $name $args);
    )* };
    (@ $name:ident ($($args:tt)*)) => {
        #[advisory_lock($($args)*)]
        async fn $name(conn: &mut AsyncPgConnection, pool: &Pool<AsyncPgConnection>, id: i64, ids: &[i64], more: &[i64], a: &str, b: &str) -> anyhow::Result<()> {
            Ok(())
        }
    };
}

locked! {
    key_has_no_name: ("job")
    key_is_empty: (key = "")
    key_is_given_twice: (key = "a", keys = ["b", "c"])
    key_is_a_macro: (key = concat!("a", "b"))
    key_is_a_pattern_without_quotes: (key = account:<id>)
    key_starts_with_a_placeholder_without_quotes: (key = <a>:<b>, wait = "5s")
    key_has_adjacent_placeholders: (key = "<id><a>")
    key_is_ambiguous: (key = "<a>-<b>")
    keys_are_empty: (keys = [])
    keys_are_one_text: (keys = "a")
    keys_have_no_brackets: (keys = "a", "b", wait = "5s")
    keys_of_two_slices: (key = "<ids*>:<more*>")
    max_keys_is_not_a_number: (key = "<ids*>", max_keys = "many")
    max_keys_without_a_slice: (keys = ["a", "b"], max_keys = 1)
    with_another_name: (key = "<id>", with(week = id / 7))
    with_without_a_value: (key = "<week>", with(week))
    with_without_parentheses: (key = "<week>", with = week)
    derivation_is_unknown: (key = "job", derivation = "sha512")
    derivation_of_a_declared_key: (key = AccountLock { id }, derivation = "md5")
    derivation_without_quotes: (key = "job", derivation = md5)
    allow_ambiguous_without_a_reason: (key = "<a>+<b>", allow_ambiguous = "")
    allow_overlap_without_a_reason: (key = "slot:<id>", allow_overlap("other"))
    allow_redundant_without_a_reason: (key = "job", guards = "jobs", allow_redundant = " ")
    allow_redundant_without_guards: (key = "job", allow_redundant = "the sum needs it")
    guards_without_a_table: (key = "booking:<id>", guards = "bookings,")
    mode_is_misspelt: (key = "job", mode = "share")
    scope_of_a_lease: (key = "job:<id>", scope = "lease", ttl = "60s", keep = "24h", on_done = Ok(()), pool = pool)
    scope_of_a_lease_on_a_connection: (key = "job:<id>", scope = "lease", mode = "exclusive", max_hold = "5m", conn = pool.get().await?)
    scope_without_quotes: (key = "job", scope = xact)
    isolation_has_an_underscore: (key = "job", isolation = "repeatable_read")
    isolation_of_a_session: (key = "job", scope = "session", isolation = "serializable")
    nested_is_misspelt: (key = "job", nested = "refused")
    nested_of_a_session: (key = "job", scope = "session", nested = "refuse")
    wait_is_in_words: (key = "job", wait = "5 seconds")
    wait_is_a_time_without_quotes: (key = "job", wait = 5s)
    wait_is_misspelt: (key = "job", wait = "nevr")
    wait_is_too_long: (key = "job", wait = "1000h")
    wait_is_zero: (key = "job", wait = "0s")
    wait_without_a_unit: (key = "job", wait = 5)
    wait_without_quotes: (key = "job", wait = never)
    poll_is_forever: (key = "job", poll = "forever")
    poll_is_zero: (key = "job", poll = "0s")
    poll_longer_than_the_wait: (key = "job", wait = "5s", poll = "1m")
    poll_max_shorter_than_poll: (key = "job", poll = "10s", poll_max = "5s")
    poll_max_without_poll: (key = "job", wait = "5m", poll_max = "10s")
    poll_of_a_single_try: (key = "job", wait = "never", poll = "250ms")
    on_held_of_a_wait_without_an_end: (key = "job", wait = "forever", on_held = Ok(()))
    on_held_without_a_wait: (key = "job", on_held = Ok(()))
    max_hold_is_forever: (key = "job", max_hold = "forever")
    max_hold_is_zero: (key = "job", max_hold = "0ms")
    max_hold_without_a_unit: (key = "job", max_hold = 30)
    queue_of_a_connection: (key = "job", queue = 64)
    queue_is_zero: (key = "job", conn = pool.get().await?, queue = 0)
    queue_of_readers: (key = "job", conn = pool.get().await?, queue = 64, mode = "shared")
    permits_is_zero: (key = "job", permits = 0, wait = "never")
    permits_of_several_keys: (key = "job:<ids*>", permits = 3, wait = "never")
    permits_that_do_not_fit: (key = "job", permits = 3, wait = "never", mode = "shared", guards = "jobs")
    permits_with_a_wait_at_the_server: (key = "job", permits = 3, wait = "5m")
    permits_with_a_queue: (key = "job", permits = 3, poll = "1s", queue = 8, conn = pool.get().await?)
    permits_without_a_wait: (key = "job", permits = 3)
    handle_is_a_parameter: (key = "room:<id>", handle = id)
    handle_is_quoted: (key = "job", handle = "lock")
    many_that_do_not_fit: (key = "job", scope = "session", isolation = "serializable", nested = "refuse", mode = "shared", on_held = Ok(()), queue = 4, max_hold = 30, handle = conn)
    of_a_lease: (key = "job", ttl = "60s", renew = "20s", keep = "24h", on_done = Ok(()), expires = "60s")
    given_twice: (key = "job", key = "task")
    misspelt: (keey = "job")
    words_that_are_unknown_and_not_quoted: (key = "job", scope = session, derivation = md6)
    retries: (key = "job", retries = 3)
    without_commas: (key = "job" scope = "sesion" wait = "5s")
    with_a_semicolon: (key = "job"; scope = "sesion")
}

#[advisory_lock(scope = "xact")]
async fn key_is_missing(conn: &mut AsyncPgConnection) -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
