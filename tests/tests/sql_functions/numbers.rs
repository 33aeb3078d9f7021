//! The numbers of the functions equal those of the Rust side and of the recipe, and our derivations
//! equal the server's hashes.

use crate::{EmailLock, migrated, says};
use advisory_pattern::{Derivation, escape};
use advisory_runtime::{Key, LockKey, lock_key};
use advisory_tests::{Database, fuzz};
use diesel::deserialize::FromSqlRow;
use diesel::dsl::sql;
use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, HasSqlType, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::sync::Mutex;
use tokio::runtime::Runtime;

/// The result of the published recipe for the text `t`, with the built-in function instead of
/// pgcrypto's.
const RECIPE: &str = "(SELECT (get_byte(h, 0)::bigint << 56) | (get_byte(h, 1)::bigint << 48) | (get_byte(h, 2)::bigint << 40) \
     | (get_byte(h, 3)::bigint << 32) | (get_byte(h, 4)::bigint << 24) | (get_byte(h, 5)::bigint << 16) \
     | (get_byte(h, 6)::bigint << 8) | get_byte(h, 7)::bigint \
     FROM sha256(convert_to(lower(trim(t)), 'UTF8')) AS h)";

/// FNV-1a over the UTF-16 code units of a text, as JavaScript computes it.
const FNV: &str = "
    CREATE FUNCTION fnv1a32(input text) RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        hash bigint := 2166136261;
        letter text;
        unit bigint;
    BEGIN
        FOREACH letter IN ARRAY string_to_array(input, NULL) LOOP
            unit := ascii(letter);
            IF unit >= 65536 THEN
                hash := ((hash # (55232 + unit / 1024)) * 16777619) % 4294967296;
                unit := 56320 + unit % 1024;
            END IF;
            hash := ((hash # unit) * 16777619) % 4294967296;
        END LOOP;
        RETURN CASE WHEN hash < 2147483648 THEN hash ELSE hash - 4294967296 END;
    END $$";

fn number(key: Key) -> i64 {
    match key {
        Key::BigInt(key) => key,
        Key::IntInt(..) => panic!("a pair: {key}"),
    }
}

/// The values of an expression over the text `t`, for each of the texts, in one round trip.
async fn each<T, ST>(conn: &mut AsyncPgConnection, expression: &str, texts: &[String]) -> Vec<T>
where
    ST: diesel::query_builder::QueryId + Send + 'static,
    Pg: HasSqlType<ST>,
    Vec<T>: FromSqlRow<Array<ST>, Pg>,
    T: Send + 'static,
{
    sql::<Array<ST>>(&format!(
        "SELECT array_agg({expression} ORDER BY n) FROM unnest("
    ))
    .bind::<Array<Text>, _>(texts)
    .sql(") WITH ORDINALITY AS texts (t, n)")
    .get_result(conn)
    .await
    .unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// Fails with the first of the texts for which the two sides differ.
fn assert_same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    texts: &[String],
    theirs: &[T],
    ours: impl Fn(&str) -> T,
) {
    assert_eq!(theirs.len(), texts.len(), "{what}: one answer a text");
    for (text, theirs) in texts.iter().zip(theirs) {
        assert_eq!(*theirs, ours(text), "{what} of {text:?}");
    }
}

/// A thousand texts, the same in every run: empty to long, a third of them ASCII, with many
/// characters that escape, trim and fold.
fn random_texts() -> Vec<String> {
    const LETTERS: &str = "%:  AZIaz0@.'\"\\$\t\n\u{7f}éÉİıßẞΣς\u{301}\u{a0}\u{3000}日\u{ffff}\u{10000}🔒\u{200d}\u{10ffff}";
    let all: Vec<char> = LETTERS.chars().collect();
    let ascii = all.iter().filter(|letter| letter.is_ascii()).count();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    // SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
    let mut below = |limit: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 33).expect("31 bits") % limit
    };
    let mut text = |i: usize| {
        let longest = if i % 100 == 99 { 3000 } else { 40 };
        let letters = if i.is_multiple_of(3) {
            ascii
        } else {
            all.len()
        };
        (0..below(longest)).map(|_| all[below(letters)]).collect()
    };
    (0..1000).map(&mut text).collect()
}

/// These numbers can never change: a changed key un-locks a fleet that is half upgraded.
#[tokio::test]
async fn the_functions_give_the_numbers_that_they_always_gave() {
    let (_db, mut conn) = migrated().await;
    for same in [
        "advisory_key('') = -2039914840885289964",
        "advisory_key('booking:1') = 3878245474506011689",
        "advisory_key('booking:' || advisory_escape('a:b%')) = advisory_key('booking:a%3Ab%25')",
        "email_to_lock_id(p_email => ' User@X.com ') = -3508133180453765740",
        "generate_lock_id(p_namespace => 'cleanup', p_key => ' U@x ') = 3268022024975605132",
    ] {
        assert!(says(&mut conn, same).await, "{same}");
    }
}

#[tokio::test]
async fn the_functions_agree_with_rust_and_the_recipe_on_random_texts() {
    let (_db, mut conn) = migrated().await;
    let texts = random_texts();

    let keys = each::<i64, BigInt>(&mut conn, "advisory_key(t)", &texts).await;
    assert_same("advisory_key", &texts, &keys, |text| {
        Derivation::Sha256.key(text)
    });

    let escaped = each::<String, Text>(&mut conn, "advisory_escape(t)", &texts).await;
    assert_same("advisory_escape", &texts, &escaped, |text| {
        let mut escaped = String::new();
        escape::escape(text, |piece| escaped.push_str(piece));
        escaped
    });

    let guests = each::<i64, BigInt>(
        &mut conn,
        "advisory_key('booking:' || advisory_escape(t))",
        &texts,
    )
    .await;
    assert_same("a pattern's key", &texts, &guests, |guest| {
        number(lock_key!(
            "booking:<guest>",
            name = "booking",
            allow_overlap("email", "deployed")
        ))
    });

    let emails = each::<i64, BigInt>(&mut conn, "email_to_lock_id(t)", &texts).await;
    assert_same("email_to_lock_id", &texts, &emails, |email| {
        number(EmailLock { email }.key())
    });

    let cleanups = each::<i64, BigInt>(&mut conn, "generate_lock_id('cleanup', t)", &texts).await;
    assert_same("generate_lock_id", &texts, &cleanups, |email| {
        number(lock_key!(
            "cleanup:<email|trim|lower|raw>",
            name = "cleanup",
            allow_overlap("email", "deployed")
        ))
    });

    let spaces = each::<i64, BigInt>(&mut conn, "generate_lock_id(t, 'B ')", &texts).await;
    assert_same("generate_lock_id's namespace", &texts, &spaces, |space| {
        Derivation::Sha256.key(&format!("{space}:b"))
    });

    let ascii: Vec<String> = texts.into_iter().filter(|text| text.is_ascii()).collect();
    assert!(ascii.len() > 300, "{}", ascii.len());
    let recipe = each::<i64, BigInt>(&mut conn, RECIPE, &ascii).await;
    assert_same("the recipe's email_to_lock_id", &ascii, &recipe, |email| {
        number(EmailLock { email }.key())
    });
}

#[tokio::test]
async fn the_arguments_collation_changes_no_key() {
    let (_db, mut conn) = migrated().await;
    // Valid for any build: a capital outside ASCII has a small letter.
    let known: Vec<String> = sql::<Text>(
        "SELECT quote_ident(collname) FROM pg_collation WHERE collnamespace = 'pg_catalog'::regnamespace \
         AND collname IN ('und-x-icu', 'tr-x-icu', 'pg_c_utf8', 'C.utf8', 'C.UTF-8') AND collencoding IN (-1, 6)",
    )
    .load(&mut conn)
    .await
    .unwrap();
    let mut folding = Vec::new();
    for collation in known {
        if says(&mut conn, &format!("lower('É' COLLATE {collation}) = 'é'")).await {
            folding.push(collation);
        }
    }
    assert!(
        !folding.is_empty(),
        "this server has no collation to show the difference with"
    );
    if folding.iter().any(|collation| collation.contains("icu")) {
        // Equal to everything that differs only in accents, case and punctuation.
        conn.batch_execute("CREATE COLLATION blurred (provider = icu, locale = 'und-u-ka-shifted-ks-level1', deterministic = false)",
        )
        .await
        .unwrap();
        folding.push("blurred".to_owned());
    }
    for collation in folding {
        for function in [
            "advisory_key(x)",
            "advisory_escape(x)",
            "email_to_lock_id(x)",
            "generate_lock_id('É', x)",
            "generate_lock_id(x, 'É')",
        ] {
            let plain = function.replace('x', "' ÉI:%;İ '");
            let collated = function.replace('x', &format!("' ÉI:%;İ ' COLLATE {collation}"));
            assert!(
                says(
                    &mut conn,
                    &format!("{plain}::text COLLATE \"C\" = {collated}::text COLLATE \"C\"")
                )
                .await,
                "{function} under {collation}"
            );
        }
        let acquired = format!(
            "acquire_cleanup_lock('É' COLLATE {collation}) AND pg_advisory_unlock(email_to_lock_id('É'))"
        );
        assert!(says(&mut conn, &acquired).await, "{collation}");
        let released =
            format!("acquire_cleanup_lock('É') AND release_cleanup_lock('É' COLLATE {collation})");
        assert!(says(&mut conn, &released).await, "{collation}");
    }
}

#[tokio::test]
async fn the_servers_hashes_are_ours_on_random_texts() {
    let db = Database::create().await;
    db.run(FNV).await;
    let mut conn = db.connect().await;
    let texts = random_texts();
    for (derivation, expression) in [
        (
            Derivation::Sha256,
            "('x' || encode(substring(sha256(convert_to(t, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint",
        ),
        (
            Derivation::Md5,
            "('x' || substr(md5(t), 1, 16))::bit(64)::bigint",
        ),
        (Derivation::Hashtext, "hashtext(t)::bigint"),
        (Derivation::Hashtextextended, "hashtextextended(t, 0)"),
        (Derivation::Fnv1a32, "fnv1a32(t)"),
    ] {
        let keys = each::<i64, BigInt>(&mut conn, expression, &texts).await;
        assert_same(derivation.name(), &texts, &keys, |text| {
            derivation.key(text)
        });
    }
}

/// As above, one text at a time, for a fuzzer.
#[test]
fn any_text_has_the_same_numbers_in_sql() {
    let runtime = Runtime::new().unwrap();
    let (_db, mut conn) = runtime.block_on(async {
        let (db, conn) = migrated().await;
        db.run(FNV).await;
        (db, conn)
    });
    let numbers = "ARRAY[advisory_key(t), advisory_key('booking:' || advisory_escape(t)), email_to_lock_id(t), \
                   generate_lock_id('cleanup', t), ('x' || substr(md5(t), 1, 16))::bit(64)::bigint, hashtext(t)::bigint, \
                   hashtextextended(t, 0), fnv1a32(t)]";
    let server = Mutex::new(move |text: &str| {
        let numbers = sql::<Array<BigInt>>(&format!("SELECT {numbers} FROM (SELECT "))
            .bind::<Text, _>(text)
            .sql(" AS t) AS texts");
        runtime.block_on(numbers.get_result::<Vec<i64>>(&mut conn))
    });
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/keys");
    fuzz(corpus, move |input| {
        // A text of the server has no NUL.
        let text = String::from_utf8_lossy(input).replace('\0', "");
        let ours = [
            Derivation::Sha256.key(&text),
            number(lock_key!(
                "booking:<text>",
                name = "booking",
                allow_overlap("email", "deployed")
            )),
            number(EmailLock { email: &text }.key()),
            number(lock_key!(
                "cleanup:<text|trim|lower|raw>",
                name = "cleanup",
                allow_overlap("email", "deployed")
            )),
            Derivation::Md5.key(&text),
            Derivation::Hashtext.key(&text),
            Derivation::Hashtextextended.key(&text),
            Derivation::Fnv1a32.key(&text),
        ];
        let theirs = (server.lock().unwrap())(&text);
        assert_eq!(theirs.unwrap(), ours, "{text:?}");
    });
}
