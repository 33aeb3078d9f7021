//! The locks that a statement requests, and the names that its comment gives them.

use advisory_runtime::Key;
use advisory_runtime::monitor::{Names, keys_of};

#[test]
fn pairs_and_several_keys_are_read_and_other_numbers_are_not() {
    let pair = |first, second| Key::IntInt(first, second);
    for (statements, keys) in [
        (
            "pg_advisory_xact_lock(-9223372036854775808)",
            vec![i64::MIN.into()],
        ),
        (
            "pg_advisory_lock(CAST(7 AS pg_catalog.int8))",
            vec![7.into()],
        ),
        ("pg_advisory_lock(7,3)", vec![pair(7, 3)]),
        (
            "pg_advisory_lock(CAST(-2147483648 AS pg_catalog.int4),3)",
            vec![pair(i32::MIN, 3)],
        ),
        ("pg_advisory_lock( 7 , CAST(3 AS int4) )", vec![pair(7, 3)]),
        (
            "pg_advisory_xact_lock(2),pg_advisory_xact_lock(1);SELECT pg_advisory_lock(2),pg_advisory_lock(1)",
            vec![1.into(), 2.into()],
        ),
        ("pg_advisory_lock(1),pg_advisory_lo", vec![1.into()]),
        ("pg_advisory_lock(1),pg_advisory_lock(2", vec![1.into()]),
        (
            "pg_advisory_unlock(1),my_pg_advisory_lock(2),f(3),4",
            vec![],
        ),
        ("pg_advisory_lock($1),pg_advisory_lock(1.5)", vec![]),
        ("pg_advisory_lock(1,2,3),pg_advisory_lock()", vec![]),
        (
            "pg_advisory_lock('7'::bigint),pg_advisory_lock(CAST(CASE WHEN pg_backend_pid() = 31247 THEN 'advisory:pooled-session' \
             ELSE '8' END AS pg_catalog.int4),-3)",
            vec![7.into(), pair(8, -3)],
        ),
        (
            "pg_advisory_lock(hashtextextended('orders',0)),pg_try_advisory_lock(7,hashtext('room:1')),pg_advisory_lock(hashtext('42')),\
             pg_advisory_lock(40 + 2),pg_advisory_lock(5 - 3),pg_advisory_lock(CASE WHEN a THEN 5 ELSE 6 END)",
            vec![],
        ),
        ("pg_advisory_lock(3000000000,1)", vec![]),
        ("pg_advisory_lock(9223372036854775808)", vec![]),
    ] {
        assert_eq!(keys_of(statements), keys, "{statements}");
    }
}

fn name(statement: &str) -> Option<String> {
    let names = Names::none().of_lock(1.into(), statement, None);
    // The table of other tools has this number too.
    let of_comment = names.into_iter().find(|name| name.name.is_none());
    of_comment.map(|name| name.key)
}

#[test]
fn the_comment_of_a_locked_call_names_the_lock() {
    let long = "x".repeat(200);
    for (comment, key) in [
        ("a:<b>", Some("a:<b>")),
        ("path/ ", Some("path/")),
        ("wait...", Some("wait...")),
        (&*long, Some(&*long)),
        (&*format!("{long}x"), None),
        ("", None),
    ] {
        let statement = format!("/*advisory:{comment}*/;SELECT pg_catalog.pg_advisory_lock(1)");
        assert_eq!(name(&statement).as_deref(), key, "{statement}");
    }
    for statement in [
        "",
        "SELECT pg_advisory_lock(1) /*advisory:a*/",
        " /*advisory:a*/SELECT pg_advisory_lock(1)",
        "/* advisory:a*/SELECT pg_advisory_lock(1)",
        "/*advisory:a*/UPDATE t SET i = 1",
        "/*advisory:a*/SELECT pg_advisory_unlock(1)",
        "/*advisory:pg_advisory_lock(1)*/SELECT 1",
        "<insufficient privilege>",
    ] {
        assert_eq!(name(statement), None, "{statement}");
    }
}
