//! A claim's records are found next to those of lock sites, and neither reader sees the other's.

use advisory_pattern::{
    CLAIM_COLUMNS, CLAIM_PARTS, CLAIM_START, ClaimRecord, MODULE_PATH, Record, RecordError,
};

fn claim() -> ClaimRecord {
    ClaimRecord {
        table: "schema::r#mail".to_owned(),
        columns: vec![
            ("locked_until".to_owned(), "lease_until".to_owned()),
            ("locked_by".to_owned(), "locked_by".to_owned()),
        ],
        deletes: vec!["completed_at".to_owned()],
        key: vec!["house".to_owned(), "id".to_owned()],
        order: vec![
            ("priority".to_owned(), "DESC NULLS LAST".to_owned()),
            ("id".to_owned(), String::new()),
        ],
        ttl: Some("5m".to_owned()),
        renew: Some("30s".to_owned()),
        limit: Some("LIMIT".to_owned()),
        max_attempts: Some("5".to_owned()),
        purpose: Some("A letter".to_owned()),
        module: "post::office".to_owned(),
        row: "Mail".to_owned(),
        file: "src/office.rs".to_owned(),
        line: 7,
        krate: "post".to_owned(),
        version: "1.0.0".to_owned(),
    }
}

#[test]
fn a_claim_is_read_as_it_was_written() {
    for record in [claim(), ClaimRecord::default()] {
        let text = record.encode();
        assert_eq!(ClaimRecord::find_all(text.as_bytes()), Ok(vec![record]));
    }
    assert_eq!(claim().table_name(), "mail");
    assert_eq!(claim().column("locked_until"), Some("lease_until"));
    assert_eq!(claim().column("run_at"), None);
    let order = [("priority", "DESC NULLS LAST"), ("id", "")];
    assert_eq!(claim().claim_order(), order);
    let mut by_time = claim();
    by_time.order.clear();
    by_time
        .columns
        .push(("run_at".to_owned(), "due".to_owned()));
    assert_eq!(
        by_time.claim_order(),
        [("due", ""), ("house", ""), ("id", "")]
    );
}

/// So an earlier command reads the lock sites of a program that also has claims.
#[test]
fn readers_of_lock_sites_skip_claims() {
    let site = Record {
        function: "book".to_owned(),
        written: vec![String::new()],
        keys: vec![String::new()],
        ..Record::default()
    };
    let bytes = [claim().encode(), site.encode(), claim().encode()].concat();
    assert_eq!(Record::find_all(bytes.as_bytes()), Ok(vec![site]));
    assert_eq!(ClaimRecord::find_all(bytes.as_bytes()), Ok(vec![claim()]));
}

#[test]
fn the_columns_follow_the_module_that_the_compiler_knows() {
    let bare = ClaimRecord {
        columns: Vec::new(),
        deletes: Vec::new(),
        key: Vec::new(),
        order: Vec::new(),
        module: MODULE_PATH.to_owned(),
        ..claim()
    };
    let encoded = bare.encode();
    let start = CLAIM_START.concat();
    let rest = encoded.strip_prefix(&start).unwrap();
    let (before, after) = rest.split_once(MODULE_PATH).unwrap();
    let [until, by, ..] = CLAIM_COLUMNS;
    let [deletes, key, order, direction] = CLAIM_PARTS;
    let columns = format!("{until}lease_until{by}locked_by{deletes}completed_at{key}house{key}id");
    let order = format!("{order}priority{direction} DESC NULLS LAST{order}id{direction}");
    let whole = format!("{start}{before}post::office{columns}{order}{after}");
    assert_eq!(ClaimRecord::find_all(whole.as_bytes()), Ok(vec![claim()]));
}

#[test]
fn a_claim_of_a_newer_format_or_without_an_end_is_refused() {
    let text = claim().encode();
    let newer = text.replacen("claim\u{1f}1\u{1f}", "claim\u{1f}9\u{1f}", 1);
    let found = ClaimRecord::find_all(newer.as_bytes());
    assert_eq!(found, Err(RecordError::Newer("9".to_owned())));
    let cut = &text.as_bytes()[..text.len() - 1];
    assert_eq!(ClaimRecord::find_all(cut), Err(RecordError::Truncated));
}
