//! One page with all locks: whole, closed, and without anything that it would have to load.

use std::collections::BTreeSet;

use crate::records::edge;
use advisory_pattern::{ClaimRecord, Record};

use crate::programs::{
    advisory, assert_has, assert_has_all, assert_lacks, assert_lacks_all, booking_service, file,
    inventory, keyed, program_of, scratch, shop,
};

/// The page, which is balanced and loads nothing.
fn page(words: &[&str]) -> String {
    let path = scratch(&format!("report-{}.html", words.join("").len()));
    let said = advisory(&[&["report", "-o", &path], words].concat());
    assert_eq!((said.code, &*said.out, &*said.err), (Some(0), "", ""));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_lacks_all(
        &text,
        &[
            "<script", "http:", "https:", "src=", "@import", "<link", "<img",
        ],
    );
    for parts in text.split("url(").skip(1) {
        assert!(
            parts.starts_with("#tip)") || parts.starts_with("#red-tip)"),
            "{parts}"
        );
    }
    let mut open = Vec::new();
    for tag in text.split('<').skip(1).filter(|tag| !tag.starts_with('!')) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/'])
            .next()
            .unwrap();
        let is_void = ["meta", "br"].contains(&name) || tag.ends_with('/');
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{text}");
        } else if !is_void {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
    let ids = || text.split(" id=\"").skip(1).map(|id| id.split('"').next());
    let distinct: BTreeSet<_> = ids().collect();
    assert_eq!(ids().count(), distinct.len(), "{text}");
    for link in text.split("href=\"#").skip(1) {
        let (id, _) = link.split_once('"').unwrap();
        assert_has(&text, &format!("id=\"{id}\""));
    }
    text
}

#[test]
fn a_page_has_the_locks_their_order_and_the_changes() {
    let order = edge("payout:<month>", "account:<id>")
        + &edge("account:<id>", "voucher:<code>")
        + &edge("voucher:<code>", "account:<id>");
    let order = file("report-order", order);
    let old = inventory().replace(":balance:", ":payment:");
    let old = file("report-old.json", old);
    let artifact = booking_service();
    let text = page(&["--artifact", &artifact, "--from", &order, "--against", &old]);
    assert_has_all(
        &text,
        &[
            "3 lock sites in 1 crate",
            "No two locks can collide by accident.",
            "BookingRepository",
            "<code>&lt;tenant_id&gt;:balance:&lt;booking_id&gt;</code>",
            "Balance payment coordination",
            "<path class=\"red\" d=\"M",
            "aria-label=\"A circle of locks\"",
            "<p class=\"bad\"><a href=\"#order\">1 circle in the order of locks</a></p>",
            "<p class=\"bad\"><a href=\"#changes\">1 change for which two releases cannot run side by side</a></p>",
            "<p>No two locks can collide by accident.</p>",
            "<dt>number</dt><dd>fixed</dd>",
            "<path class=\"arrow\"",
            "locks are taken in more than one order",
            "has changed",
            "prefers-color-scheme: dark",
            "name=\"viewport\"",
        ],
    );
}

#[test]
fn a_page_shows_collisions_and_says_what_is_missing() {
    let text = page(&["--artifact", &shop()]);
    assert_has_all(
        &text,
        &[
            "advisory lock keys can collide: <code>&lt;account&gt;:&lt;month&gt;</code> and ",
            "ledger::Settlement",
            "both can render",
            "<code>--from target/lock-order</code>",
        ],
    );
    assert_lacks(&text, "id=\"changes\"");
    assert_lacks(&text, "class=\"fine\"");
    // Green only where nothing is red.
    let text = page(&["--artifact", &booking_service()]);
    assert_has(
        &text,
        "<p class=\"fine\">No two locks can collide by accident.</p>",
    );
}

/// A page that shows only the first site would hide that another holds the lock differently.
#[test]
fn a_lock_of_two_components_is_one_card_with_all_its_values() {
    let site_of = |component: &str, function: &str, ttl: &str, mode: &str| {
        let mut site = keyed("svc", function, 7, "hook:<id: uint>");
        site.component = Some(component.to_owned());
        site.scope = if ttl.is_empty() { "xact" } else { "lease" }.to_owned();
        site.ttl = Some(ttl.to_owned()).filter(|ttl| !ttl.is_empty());
        site.mode = mode.to_owned();
        site
    };
    let sites = [
        site_of("Billing", "bill", "30s", "exclusive"),
        site_of("Mail", "send", "90s", "exclusive"),
        site_of("Mail", "resend", "90s", "exclusive"),
        site_of("Mail", "look", "", "shared"),
    ];
    let claim = ClaimRecord {
        table: "schema::outbox".to_owned(),
        columns: vec![("locked_by".to_owned(), "taken_by".to_owned())],
        ttl: Some("45s".to_owned()),
        limit: Some("3".to_owned()),
        purpose: Some("Sends <mail>".to_owned()),
        module: "svc::jobs".to_owned(),
        row: "Outbox".to_owned(),
        ..ClaimRecord::default()
    };
    let records: String = sites.iter().map(Record::encode).collect();
    let program = file(
        "report-values.rmeta",
        format!("rust{records}{}", claim.encode()),
    );
    let text = page(&["--artifact", &program]);
    assert_eq!(
        text.matches("<h3><code>hook:&lt;id&gt;</code></h3>")
            .count(),
        1,
        "{text}"
    );
    assert_has_all(
        &text,
        &[
            "<dt>held</dt><dd>lease, xact shared</dd>",
            "<dt>number</dt><dd>sha256</dd>",
            "<dt>lease</dt><dd>a row, found by the text of its key</dd>",
            "<dt>ttl</dt><dd><code>30s</code>, <code>90s</code></dd>",
            "<code>svc::send</code> <small>src/lib.rs:7, Mail</small>",
            "<code>hook:&lt;id&gt;</code></a> of Billing</p>",
            "<a href=\"#claims\">Claims <small>1</small></a>",
            "<h3><code>schema::outbox</code></h3>\n<p>Sends &lt;mail&gt;</p>",
            "taken_by",
            "<dt>ttl</dt><dd><code>45s</code></dd>",
            "<code>svc::jobs::Outbox</code>",
        ],
    );
}

#[test]
fn nothing_that_a_program_says_is_markup() {
    let mut site = keyed("svc", "hook", 7, "<script: text>:x");
    site.purpose = Some("</style><script>alert('1')&\u{202e}</script>".to_owned());
    site.component = Some("\"><img alt=x>".to_owned());
    let [mut spaced, mut hyphened] = ["one", "two"].map(|name| keyed("svc", name, 7, name));
    spaced.component = Some("a b".to_owned());
    hyphened.component = Some("a-b".to_owned());
    let program = program_of("report.rmeta", &[site, spaced, hyphened]);
    let text = page(&["--artifact", &program]);
    assert_lacks(&text, "\u{202e}");
    let shown = "&lt;/style&gt;&lt;script&gt;alert(&#39;1&#39;)&amp; &lt;/script&gt;";
    assert_has_all(&text, &[shown, "&quot;&gt;&lt;img alt=x&gt;"]);
}
